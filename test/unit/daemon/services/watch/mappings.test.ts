import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  closeSync,
  mkdirSync,
  openSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { beforeEach, describe, expect, test } from 'vitest';
import { needs } from '../../../../support/machine/needs.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';

beforeEach(() => needs('python3'));

/** Changes a file, which has a page, through a shared mapping; `before` and `after` are statements of Python. */
async function writeMapped(path: string, before = '', after = ''): Promise<void> {
  const program = `
import mmap, os, sys, time
path = sys.argv[1]
file = os.open(path, os.O_RDWR)
memory = mmap.mmap(file, 4096)
${before}
memory[0:4] = b"text"
${after}
os.close(file)
memory.close()
`;
  const child = spawn('python3', ['-c', program, path], { stdio: 'inherit' });
  expect((await once(child, 'exit'))[0]).toBe(0);
}

describe.each([tmpdir(), '/dev/shm'])('a file in %s', (parent) => {
  async function fixture(): Promise<WatchFixture> {
    const f = new WatchFixture(undefined, parent);
    mkdirSync(f.at('below'), { recursive: true });
    for (const name of ['file', 'below/file']) writeFileSync(f.at(name), Buffer.alloc(4096));
    return f;
  }

  test('that is written through a shared mapping is one WRITE, each time', async () => {
    await using f = await fixture();
    const watch = await f.watch();
    const other = await f.watch({ recursive: false });
    for (const name of ['below/file', 'file', 'file']) {
      await writeMapped(f.at(name));
      expect(await f.told(watch)).toEqual([`write ${name}`]);
    }
    expect(await f.told(other)).toEqual(['write file', 'write file']);
    // Changed once, and opened twice more while the events are queued.
    await writeMapped(f.at('file'));
    for (let n = 0; n < 2; n++) closeSync(openSync(f.at('file'), 'r+'));
    expect(await f.told(watch)).toEqual(['write file']);
  });

  test('that is also written is not reported again', async () => {
    await using f = await fixture();
    const watch = await f.watch();
    await writeMapped(f.at('file'), 'os.write(file, b"text")');
    expect(await f.told(watch)).toEqual(['write file']);
  });

  test('whose other changes have been reported', async () => {
    await using f = await fixture();
    const watch = await f.watch();
    appendFileSync(f.at('file'), 'text');
    expect(await f.told(watch)).toEqual(['write file']);
    await writeMapped(f.at('file'));
    expect(await f.told(watch)).toEqual(['write file']);
  });

  test('that is made in a new directory, and written later', async () => {
    await using f = await fixture();
    const watch = await f.watch();
    mkdirSync(f.at('new'));
    const descriptor = openSync(f.at('new/file'), 'w+');
    expect((await f.told(watch)).sort()).toEqual(['create new', 'create new/file']);
    closeSync(descriptor);
    expect(await f.told(watch)).toEqual([]);
    appendFileSync(f.at('new/file'), Buffer.alloc(4096));
    expect(await f.told(watch)).toEqual(['write new/file']);
    await writeMapped(f.at('new/file'));
    expect(await f.told(watch)).toEqual(['write new/file']);
  });

  test('that is opened for writing and not changed is not reported', async () => {
    await using f = await fixture();
    const watch = await f.watch();
    const open = (flags: string, name = 'file') => closeSync(openSync(f.at(name), flags));
    open('r+');
    expect(await f.told(watch)).toEqual([]);
    open('w', 'new');
    expect(await f.told(watch)).toEqual(['create new']);
    open('r+', 'new');
    const descriptor = openSync(f.at('new'), 'r+');
    writeSync(descriptor, 'text');
    closeSync(descriptor);
    open('r+', 'new');
    expect(await f.told(watch)).toEqual(['write new']);
    utimesSync(f.at('new'), new Date(), new Date());
    open('r+', 'new');
    expect(await f.told(watch)).toEqual(['chmod new']);
    open('r+', 'new');
    expect(await f.told(watch)).toEqual([]);
  });
});
