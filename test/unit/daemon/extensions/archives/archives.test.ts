import { readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { Archives } from '../../../../../src/daemon/extensions/archives/archives.ts';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ROOT } from '../../../../support/machine/users.ts';
import { testLanes } from '../../../../support/services/lanes.ts';
import { archiveOf } from '../../../../support/services/tar-archive.ts';

test('an archive leaves the gate for its client only when nothing is being written', async () => {
  const path = scratch();
  const gate = new WriteGate();
  // Two jobs of 64.
  const files = Array.from({ length: 128 }, (_, index) => ({ name: `${index}`, content: 'x'.repeat(1000) }));
  const archive = archiveOf(...files);
  let atRest = 0;
  async function* source() {
    yield archive.subarray(0, -1024);
    gate.shut();
    await gate.whenIdle(10_000);
    atRest = readdirSync(path).length;
    gate.open();
    yield archive.subarray(-1024);
  }
  const archives = new Archives(testLanes, gate);
  const user = { ...ROOT, uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 };
  const unpacked = await archives.unpack(path, user, source(), AbortSignal.any([]));
  expect(unpacked.files).toBe(128);
  expect(atRest).toBe(128);
});
