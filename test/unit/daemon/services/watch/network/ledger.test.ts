import { mkdirSync, mkdtempDisposableSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { bytePath } from '../../../../../../src/daemon/linux/paths/byte-path.ts';
import { Ledger } from '../../../../../../src/daemon/services/watch/network/ledger.ts';

test.each([
  [false, 10, ['directory', 'file']],
  [true, 10, ['directory', 'file', 'directory/below']],
  [true, 2, ['directory', 'file', 'directory/below']],
])('recursive: %s, at most %d: the entries that are reported', async (recursive, limit, expected) => {
  using root = mkdtempDisposableSync(join(tmpdir(), 'envd-ledger-'));
  mkdirSync(join(root.path, 'directory', 'below'), { recursive: true });
  writeFileSync(join(root.path, 'file'), '');
  const ledger = new Ledger(bytePath(Buffer.from(root.path)));
  await ledger.fill(recursive, limit);
  expect(ledger.names().sort()).toEqual(expected.toSorted());
});
