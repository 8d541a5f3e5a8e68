import { appendFileSync, chmodSync, mkdirSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { WatchFixture } from '../../../../support/services/watch.ts';

/** 2,000 operations in one turn of the event loop are all reported, once and in order. */
const OPERATIONS = 2000;

interface Row {
  readonly what: string;
  /** Makes the initial files, before the watch. */
  readonly before?: (at: (name: string) => string) => void;
  /** Does the operations, and returns the expected events. */
  readonly operate: (at: (name: string) => string, n: number) => readonly string[];
}

function each(action: (path: string) => void) {
  return (at: (name: string) => string) => {
    for (let n = 0; n < OPERATIONS; n++) action(at(`${n}`));
  };
}

const withFiles = each((path) => writeFileSync(path, ''));

const rows: Row[] = [
  {
    what: 'rename',
    before: withFiles,
    operate: (at, n) => {
      renameSync(at(`${n}`), at(`to-${n}`));
      return [`rename ${n}`, `create to-${n}`];
    },
  },
  {
    what: 'chmod',
    before: withFiles,
    operate: (at, n) => {
      chmodSync(at(`${n}`), 0o600);
      return [`chmod ${n}`];
    },
  },
  {
    what: 'create, write, delete',
    operate: (at, n) => {
      writeFileSync(at(`${n}`), 'x');
      unlinkSync(at(`${n}`));
      return [`create ${n}`, `write ${n}`, `remove ${n}`];
    },
  },
  {
    what: 'ten appends to each file',
    before: withFiles,
    operate: (at, n) => {
      const file = Math.floor(n / 10);
      appendFileSync(at(`${file}`), 'x');
      return [`write ${file}`];
    },
  },
  {
    what: 'delete and recreate',
    before: withFiles,
    operate: (at, n) => {
      unlinkSync(at(`${n}`));
      writeFileSync(at(`${n}`), '');
      return [`remove ${n}`, `create ${n}`];
    },
  },
  {
    what: 'write, then chmod',
    operate: (at, n) => {
      writeFileSync(at(`${n}`), 'x');
      chmodSync(at(`${n}`), 0o600);
      return [`create ${n}`, `write ${n}`, `chmod ${n}`];
    },
  },
  {
    what: 'rename, then delete',
    before: withFiles,
    operate: (at, n) => {
      renameSync(at(`${n}`), at(`to-${n}`));
      unlinkSync(at(`to-${n}`));
      return [`rename ${n}`, `create to-${n}`, `remove to-${n}`];
    },
  },
  {
    what: 'atomic save',
    before: withFiles,
    operate: (at, n) => {
      writeFileSync(at('temporary'), 'x');
      renameSync(at('temporary'), at(`${n}`));
      return ['create temporary', 'write temporary', 'rename temporary', `create ${n}`];
    },
  },
  {
    what: 'directories made and removed',
    operate: (at, n) => {
      mkdirSync(at(`${n}`));
      renameSync(at(`${n}`), at(`to-${n}`));
      return [`create ${n}`, `rename ${n}`, `create to-${n}`];
    },
  },
];

describe.each(rows)('$what', ({ before, operate }) => {
  test.each([true, false])('recursive: %s', async (recursive) => {
    await using f = new WatchFixture();
    mkdirSync(f.dir);
    const at = (name: string) => f.at(name);
    before?.(at);
    const watch = await f.watch({ recursive });
    const expected: string[] = [];
    for (let n = 0; n < OPERATIONS; n++) expected.push(...operate(at, n));
    expect(await f.told(watch)).toEqual(expected);
  });
});

test('1,500 entries of new directories are each reported once as CREATE', async () => {
  await using f = new WatchFixture();
  mkdirSync(f.dir);
  const watch = await f.watch();
  const expected: string[] = [];
  for (let n = 0; n < 250; n++) {
    mkdirSync(f.at(`${n}/a/b`), { recursive: true });
    for (const name of ['1', 'a/2', 'a/b/3']) writeFileSync(f.at(`${n}`, name), 'x');
    for (const name of ['', '/a', '/a/b', '/1', '/a/2', '/a/b/3']) expected.push(`create ${n}${name}`);
  }
  expect((await f.told(watch)).sort()).toEqual(expected.sort());
});
