import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Transfers } from '../../../../../../src/base/tally.ts';
import { Lanes } from '../../../../../../src/daemon/linux/lanes/lanes.ts';
import { REPLACE } from '../../../../../../src/daemon/services/files/entries/file-change.ts';
import { UploadResources } from '../../../../../../src/daemon/services/files/uploads/context.ts';
import { type UploadPart, upload } from '../../../../../../src/daemon/services/files/uploads/upload.ts';
import { WriteGate } from '../../../../../../src/daemon/services/pause/write-gate.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { ADA } from '../../../../../support/machine/users.ts';

/** An upload of `parts`. */
function uploaded(parts: readonly UploadPart[], gate = new WriteGate(), tally = new Transfers()) {
  async function* sent() {
    yield* parts;
  }
  return upload(sent(), {
    user: ADA,
    metadata: { values: {}, prefix: 'user.svc.' },
    durable: false,
    change: REPLACE,
    verified: false,
    signal: new AbortController().signal,
    defaultWorkdir: null,
    shared: new UploadResources(new Lanes({ limitMs: 10_000, threads: 4 }), gate, tally),
  });
}

/** A file of these pieces; `before` is called when they are asked for. */
function part(path: string, pieces: readonly Buffer[], before?: () => void): UploadPart {
  async function* content() {
    before?.();
    for (const piece of pieces) yield [piece];
  }
  return { path, length: null, content: content() };
}

test('files and received bytes are counted, also those of an upload that fails', async () => {
  const root = scratch();
  const tally = new Transfers();
  const good = [part(join(root, 'one'), [Buffer.from('abc'), Buffer.from('de')])];
  await uploaded([...good, part(join(root, 'two'), [Buffer.alloc(100_000)])], undefined, tally);
  expect({ ...tally }).toEqual({ count: 2, bytes: 100_005 });
  await expect(uploaded([part(root, [Buffer.from('x')])], undefined, tally)).rejects.toMatchObject({
    kind: 'invalid_argument',
    message: `path is a directory: ${root}`,
  });
  expect({ ...tally }).toEqual({ count: 2, bytes: 100_006 });
});

test('small pieces are joined; large ones are freed once they are written', async () => {
  const root = scratch();
  const large = Buffer.alloc(100_000, 'x');
  const shared = Buffer.alloc(10_000, 'y');
  const small = Array.from({ length: 40 }, (_, index) => Buffer.from([index]));
  await uploaded([
    part(join(root, 'many'), small),
    part(join(root, 'grown'), [Buffer.from('first '), large, shared.subarray(0, 5000)]),
  ]);
  expect(readFileSync(join(root, 'many'))).toEqual(Buffer.from(Array.from(small.keys())));
  expect(readFileSync(join(root, 'grown'), 'latin1')).toBe(`first ${'x'.repeat(100_000)}${'y'.repeat(5000)}`);
  expect(large.length).toBe(0);
  expect(shared.every((byte) => byte === 0x79)).toBe(true);
});

test('a bad second file leaves nothing of a small first one', async () => {
  const root = scratch();
  const parts = [part(join(root, 'first'), [Buffer.from('x')]), part(root, [Buffer.from('y')])];
  await expect(uploaded(parts)).rejects.toMatchObject({ message: `path is a directory: ${root}` });
  expect(existsSync(join(root, 'first'))).toBe(false);
});

test('a small file that exists keeps inode and mode, and belongs to the user', async () => {
  const path = join(scratch(), 'file');
  writeFileSync(path, 'long old content', { mode: 0o640 });
  const { ino } = statSync(path);
  await uploaded([part(path, [Buffer.from('new')])]);
  expect(readFileSync(path, 'utf8')).toBe('new');
  expect(statSync(path)).toMatchObject({ ino, uid: 2001, gid: 2002, size: 3 });
  expect(statSync(path).mode & 0o7777).toBe(0o640);
  await uploaded([part(path, [])]);
  expect(statSync(path).size).toBe(0);
});

test('is refused while the gate is shut; one in progress waits with its next step', async () => {
  const path = join(scratch(), 'file');
  const gate = new WriteGate();
  gate.shut();
  await expect(uploaded([part(path, [])], gate)).rejects.toMatchObject({ kind: 'unavailable' });
  gate.open();
  const shut = Promise.withResolvers<void>();
  const done = uploaded(
    [
      part(path, [Buffer.from('x')], () => {
        gate.shut();
        shut.resolve();
      }),
    ],
    gate,
  );
  await shut.promise;
  await gate.whenIdle(0);
  expect(existsSync(path)).toBe(false);
  gate.open();
  await done;
  expect(readFileSync(path, 'utf8')).toBe('x');
});
