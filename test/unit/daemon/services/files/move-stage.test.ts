import { chmodSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { move } from '../../../../../src/daemon/services/files/move.ts';
import { mountTmpfs } from '../../../../support/mounts.ts';
import { scratch } from '../../../../support/scratch.ts';
import { ROOT, testEntries } from '../../../../support/users.ts';

/** What the owner of the destination's directory has put in the place of the temporary directory. */
const { exchanged } = vi.hoisted(() => ({ exchanged: { target: '' } }));
vi.mock('node:fs/promises', async (original) => ({
  ...(await original<typeof import('node:fs/promises')>()),
  mkdtemp: async (prefix: string) => {
    symlinkSync(exchanged.target, `${prefix}exchanged`);
    return `${prefix}exchanged`;
  },
}));

test('a move to another file system writes nothing where its temporary directory was replaced', async () => {
  const [from, to] = [scratch(), mountTmpfs('1m')];
  exchanged.target = join(to, 'open');
  mkdirSync(exchanged.target);
  chmodSync(exchanged.target, 0o755);
  const before = statSync(exchanged.target, { bigint: true }).mtimeNs;
  writeFileSync(join(from, 'file'), 'content');
  await expect(move(join(from, 'file'), join(to, 'file'), ROOT, testEntries(from))).rejects.toThrow();
  expect(readdirSync(exchanged.target)).toEqual([]);
  expect(statSync(exchanged.target, { bigint: true }).mtimeNs).toBe(before);
  expect(readdirSync(from)).toContain('file');
});
