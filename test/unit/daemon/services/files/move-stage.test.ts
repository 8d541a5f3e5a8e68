import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, test, vi } from 'vitest';
import { move } from '../../../../../src/daemon/services/files/move.ts';
import { mountTmpfs } from '../../../../support/machine/mounts.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ROOT, testEntries } from '../../../../support/machine/users.ts';
import { NEVER } from '../../../../support/services/lanes.ts';

/** What another process does between two steps. */
const { other } = vi.hoisted(() => ({
  other: { exchangesStage: null as string | null, afterLstat: (_path: string) => {} },
}));
vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>();
  return {
    ...real,
    lstat: async (path: string | Buffer) => {
      const status = await real.lstat(path);
      other.afterLstat(`${path}`);
      return status;
    },
    mkdtemp: async (prefix: string) => {
      if (other.exchangesStage === null) return real.mkdtemp(prefix);
      symlinkSync(other.exchangesStage, `${prefix}exchanged`);
      return `${prefix}exchanged`;
    },
  };
});

beforeEach(() => {
  other.exchangesStage = null;
  other.afterLstat = () => {};
});

test('a move to another file system writes nothing where its temporary directory was replaced', async () => {
  const [from, to] = [scratch(), mountTmpfs('1m')];
  const target = join(to, 'open');
  other.exchangesStage = target;
  mkdirSync(target);
  chmodSync(target, 0o755);
  const before = statSync(target, { bigint: true }).mtimeNs;
  writeFileSync(join(from, 'file'), 'content');
  await expect(move(join(from, 'file'), join(to, 'file'), ROOT, testEntries(from), NEVER)).rejects.toThrow(
    `temporary directory was replaced by another process: '${join(to, 'file')}'`,
  );
  expect(readdirSync(target)).toEqual([]);
  expect(statSync(target, { bigint: true }).mtimeNs).toBe(before);
  expect(readdirSync(from)).toContain('file');
});

test('a move to another file system does not remove a directory that takes the place of its source', async () => {
  const [from, to] = [scratch(), mountTmpfs('1m')];
  for (const name of ['source', 'other']) {
    mkdirSync(join(from, name));
    writeFileSync(join(from, name, 'file'), name);
  }
  other.afterLstat = (path) => {
    // The source has been copied, and is about to be removed.
    if (!path.endsWith('/source') || !readdirSync(to).includes('moved')) return;
    other.afterLstat = () => {};
    renameSync(join(from, 'source'), join(from, 'elsewhere'));
    renameSync(join(from, 'other'), join(from, 'source'));
  };
  await move(join(from, 'source'), join(to, 'moved'), ROOT, testEntries(from), NEVER);
  expect(readdirSync(from)).toEqual(expect.arrayContaining(['elsewhere', 'source']));
  expect(readdirSync(from).join()).not.toContain('.envd');
  expect(readFileSync(join(from, 'source/file'), 'utf8')).toBe('other');
  expect(readFileSync(join(to, 'moved/file'), 'utf8')).toBe('source');
});
