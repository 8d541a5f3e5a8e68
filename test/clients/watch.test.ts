import { join } from 'node:path';
import { type FilesystemEvent, FilesystemEventType, FileType, TimeoutError } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Guest, Seen, startGuest } from '../support/programs/sandbox.ts';

type WatchOptions = NonNullable<Parameters<Guest['sandbox']['files']['watchDir']>[2]>;
const { CREATE, CHMOD, WRITE, REMOVE, RENAME } = FilesystemEventType;

let guest: Guest;
let files: Guest['sandbox']['files'];
let count = 0;
beforeAll(async () => {
  guest = await startGuest();
  files = guest.sandbox.files;
});
afterAll(() => guest[Symbol.asyncDispose]());

/** A new directory with a watch; `upToNow` returns the events before the call, in order. */
async function watched(opts: WatchOptions = {}) {
  const directory = join(guest.directory, `${++count}`);
  await files.makeDir(directory);
  const seen = new Seen<FilesystemEvent>();
  const exit = Promise.withResolvers<Error | undefined>();
  const handle = await files.watchDir(directory, seen.add, { onExit: exit.resolve, ...opts });
  const upToNow = async () => {
    // Events are ordered: all earlier ones precede this one.
    await files.makeDir(join(directory, 'the-end'));
    const isEnd = ({ name }: FilesystemEvent) => name === 'the-end';
    const events = await seen.until((items) => items.some(isEnd));
    return events.slice(0, events.findIndex(isEnd));
  };
  return { directory, seen, handle, upToNow, exit: exit.promise };
}

/** The chown of a new directory to its user is reported as CHMOD when it changes the owner. */
const withoutChmod = (event: string) => !event.startsWith(CHMOD);

const brief = (events: readonly FilesystemEvent[]) => events.map(({ name, type }) => `${type} ${name}`);

test.each([
  ['as a form', {}],
  ['as raw bytes', { useOctetStream: true }],
  ['compressed', { gzip: true }],
  ['with metadata', { metadata: { author: 'Ada' } }],
])('a new file uploaded %s is CREATE, CHMOD, WRITE', async (_name, opts) => {
  const { directory, handle, upToNow } = await watched();
  await files.write(join(directory, 'new.txt'), 'content', opts);
  expect(await files.read(join(directory, 'new.txt'))).toBe('content');
  expect(brief(await upToNow())).toEqual([`${CREATE} new.txt`, `${CHMOD} new.txt`, `${WRITE} new.txt`]);
  await handle.stop();
});

test('a new file is complete when its first event arrives', async () => {
  const { directory, seen, handle } = await watched();
  const big = 'x'.repeat(3_000_000);
  const upload = files.write(join(directory, 'big'), big, { useOctetStream: true });
  await seen.until(([first]) => first !== undefined);
  expect((await files.read(join(directory, 'big'))) === big).toBe(true);
  await upload;
  await handle.stop();
});

test('an overwritten file is WRITE', async () => {
  const { directory, seen, handle, upToNow } = await watched();
  const path = join(directory, 'file.txt');
  await files.write(path, 'one');
  await seen.until((events) => events.some(({ type }) => type === WRITE));
  const before = seen.items.length;
  await files.write(path, 'two');
  const types = new Set((await upToNow()).slice(before).map(({ type }) => type));
  expect(types.has(WRITE)).toBe(true);
  expect(types.has(CREATE)).toBe(false);
  await handle.stop();
});

test('rename and remove are reported', async () => {
  const { directory, handle, upToNow } = await watched();
  await files.makeDir(join(directory, 'old'));
  await files.rename(join(directory, 'old'), join(directory, 'new'));
  await files.remove(join(directory, 'new'));
  expect(brief(await upToNow()).filter(withoutChmod)).toEqual([
    `${CREATE} old`,
    `${RENAME} old`,
    `${CREATE} new`,
    `${REMOVE} new`,
  ]);
  await handle.stop();
});

test('changes by a command are reported', async () => {
  const { directory, handle, upToNow } = await watched();
  await guest.sandbox.commands.run('touch made; chmod 600 made; rm made', { cwd: directory });
  const events = brief(await upToNow());
  expect(events[0]).toBe(`${CREATE} made`);
  expect(events).toContain(`${CHMOD} made`);
  expect(events.at(-1)).toBe(`${REMOVE} made`);
  await handle.stop();
});

test('changes below the directory are reported only when recursive', async () => {
  const flat = await watched();
  const deep = await watched({ recursive: true });
  for (const { directory } of [flat, deep]) await files.write(join(directory, 'a/b/c.txt'), 'x');
  expect(brief(await flat.upToNow()).filter((event) => event.startsWith(CREATE))).toEqual([`${CREATE} a`]);
  // What is in a new directory may be told after a later change beside it.
  const isLast = ({ name, type }: FilesystemEvent) => type === CREATE && name === 'a/b/c.txt';
  await deep.seen.until((events) => events.some(isLast));
  const created = brief(deep.seen.items).filter((event) => event.startsWith(CREATE));
  expect(created).toEqual([`${CREATE} a`, `${CREATE} a/b`, `${CREATE} a/b/c.txt`]);
  await flat.handle.stop();
  await deep.handle.stop();
});

test('events have entries when requested', async () => {
  const { directory, handle, upToNow } = await watched({ includeEntry: true });
  const path = join(directory, 'entry.txt');
  await files.write(path, '12345', { metadata: { kind: 'note' } });
  const events = await upToNow();
  expect(events).toHaveLength(3);
  for (const { entry } of events) {
    expect(entry).toMatchObject({ name: 'entry.txt', path, type: FileType.FILE, size: 5, owner: 'root' });
    expect(entry?.metadata).toEqual({ kind: 'note' });
  }
  await handle.stop();
});

test('events have no entries without a request, or when the file is gone', async () => {
  const plain = await watched();
  await files.write(join(plain.directory, 'x'), '');
  for (const { entry } of await plain.upToNow()) expect(entry).toBeUndefined();
  const full = await watched({ includeEntry: true });
  await files.makeDir(join(full.directory, 'x'));
  await files.remove(join(full.directory, 'x'));
  expect((await full.upToNow()).at(-1)).toEqual({ name: 'x', type: REMOVE, entry: undefined });
  await plain.handle.stop();
  await full.handle.stop();
});

test('a stopped watch reports its exit and nothing more', async () => {
  const { directory, seen, handle, exit } = await watched();
  await handle.stop();
  await exit;
  const before = seen.items.length;
  await files.makeDir(join(directory, 'later'));
  expect(seen.items).toHaveLength(before);
});

test('a watch ends after its time limit', async () => {
  // The limit is of the start, too, which takes longer on a machine that has no time.
  const ended = watched({ timeoutMs: 300 }).then(
    ({ exit }) => exit,
    (error: unknown) => error,
  );
  expect(await ended).toBeInstanceOf(TimeoutError);
});

test('a watch ends without an error when its directory is removed', async () => {
  const { directory, seen, exit } = await watched();
  await files.remove(directory);
  expect(await exit).toBeUndefined();
  expect(brief(seen.items).at(-1)).toBe(`${REMOVE} .`);
});

test('two watches of one directory each report everything', async () => {
  const first = await watched();
  const second = new Seen<FilesystemEvent>();
  const handle = await files.watchDir(first.directory, second.add);
  await files.makeDir(join(first.directory, 'seen'));
  await second.until((events) => events.some(({ name }) => name === 'seen'));
  expect(brief(await first.upToNow()).filter(withoutChmod)).toEqual([`${CREATE} seen`]);
  await handle.stop();
  await first.handle.stop();
});
