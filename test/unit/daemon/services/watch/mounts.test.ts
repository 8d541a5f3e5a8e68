import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, fchmodSync, mkdirSync, openSync, writeFileSync } from 'node:fs';
import { beforeEach, describe, expect, test } from 'vitest';
import type { Watch } from '../../../../../src/daemon/services/watch/watcher.ts';
import { mountSilent } from '../../../../support/machine/mounts.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { untilEnd, WatchFixture } from '../../../../support/services/watch.ts';
import { until } from '../../../../support/until.ts';

beforeEach(() => needs('mounts'));

/** A directory with mounts, which are removed before it. */
class MountFixture extends WatchFixture {
  readonly #mounted: string[] = [];

  mount(...args: string[]): void {
    execFileSync('mount', args);
    this.#mounted.push(args.at(-1) ?? '');
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    // Some have been unmounted by the test.
    for (const path of this.#mounted.reverse()) spawnSync('umount', ['-l', path]);
    await super[Symbol.asyncDispose]();
  }
}

function fixture(...directories: string[]): MountFixture {
  const made = new MountFixture();
  mkdirSync(made.dir);
  for (const directory of directories) mkdirSync(made.at(directory), { recursive: true });
  return made;
}

function unmount(...args: string[]): void {
  execFileSync('umount', args);
}

async function next(watch: Watch): Promise<string[]> {
  return ((await watch.next()) ?? []).map(({ type, name }) => `${type} ${name}`);
}

describe.each([true, false])('the watched directory, recursive: %s', (recursive) => {
  test('covered and uncovered: a rescan, and what is visible is watched', async () => {
    await using f = fixture('hidden');
    const watch = await f.watch({ recursive });
    for (let round = 0; round < 3; round += 1) {
      f.mount('-t', 'tmpfs', 'tmpfs', f.dir);
      expect(await next(watch)).toEqual(['rescan .']);
      writeFileSync(f.at('above'), '');
      expect(await f.told(watch)).toEqual(['create above']);
      unmount(f.dir);
      expect(await next(watch)).toEqual(['rescan .']);
      writeFileSync(f.at(`below-${round}`), '');
      expect(await f.told(watch)).toEqual([`create below-${round}`]);
    }
  });

  test('unmounted while a process has it open', async () => {
    await using f = fixture();
    f.mount('-t', 'tmpfs', 'tmpfs', f.dir);
    const watch = await f.watch({ recursive });
    const descriptor = openSync(f.dir, 'r');
    unmount('-l', f.dir);
    expect(await next(watch)).toEqual(['rescan .']);
    fchmodSync(descriptor, 0o700);
    closeSync(descriptor);
    writeFileSync(f.at('file'), '');
    expect(await f.told(watch)).toEqual(['create file']);
  });

  test('covered by another directory of the same file system', async () => {
    await using f = fixture();
    mkdirSync(f.outside('other'));
    const watch = await f.watch({ recursive });
    f.mount('--bind', f.outside('other'), f.dir);
    expect(await next(watch)).toEqual(['rescan .']);
    writeFileSync(f.outside('other/file'), '');
    expect(await f.told(watch)).toEqual(['create file']);
  });

  test('covered with a directory above it, where it is missing: REMOVE of ., then the end', async () => {
    await using f = fixture('a/b');
    const watch = await f.watch({ recursive }, f.at('a/b'));
    f.mount('-t', 'tmpfs', 'tmpfs', f.at('a'));
    expect(await untilEnd(watch)).toEqual(['remove .']);
  });

  test('covered with a directory above it, where it exists', async () => {
    await using f = fixture('a/b', 'other/b');
    const watch = await f.watch({ recursive }, f.at('a/b'));
    f.mount('--bind', f.at('other'), f.at('a'));
    expect(await next(watch)).toEqual(['rescan .']);
    writeFileSync(f.at('other/b/file'), '');
    expect(await f.told(watch, f.at('a/b'))).toEqual(['create file']);
  });

  test('removed where mounts have changed elsewhere', async () => {
    await using f = fixture('a');
    mkdirSync(f.outside('elsewhere'));
    const watch = await f.watch({ recursive }, f.at('a'));
    f.mount('-t', 'tmpfs', 'tmpfs', f.outside('elsewhere'));
    execFileSync('rmdir', [f.at('a')]);
    expect(await untilEnd(watch)).toEqual(['remove .']);
  });

  test('covered by a network file system that does not answer: the watch ends with the refusal', async () => {
    needs('python3');
    await using f = fixture();
    const watch = await f.watch({ recursive });
    using _silent = await mountSilent(f.dir);
    await expect(watch.next()).rejects.toMatchObject({
      kind: 'invalid_argument',
      message: `cannot watch path on network filesystem: '${f.dir}'`,
    });
  });

  test('covered before the watch has started', async () => {
    await using f = fixture();
    const starting = f.watch({ recursive });
    f.mount('-t', 'tmpfs', 'tmpfs', f.dir);
    const watch = await starting;
    writeFileSync(f.at('file'), '');
    const events = await next(watch);
    expect(['create file', 'rescan .']).toContain(events[0]);
  });
});

describe('below the watched directory', () => {
  test('a mount is a rescan, and watched, where the watch is recursive', async () => {
    await using f = fixture('mount/hidden');
    const watch = await f.watch();
    const flat = await f.watch({ recursive: false });
    f.mount('-t', 'tmpfs', 'tmpfs', f.at('mount'));
    expect(await next(watch)).toEqual(['rescan .']);
    mkdirSync(f.at('mount/a'));
    writeFileSync(f.at('mount/a/file'), '');
    expect(await f.told(watch)).toEqual(['create mount/a', 'create mount/a/file']);
    unmount('-l', f.at('mount'));
    expect(await next(watch)).toEqual(['rescan .']);
    writeFileSync(f.at('mount/hidden/file'), '');
    expect(await f.told(watch)).toEqual(['create mount/hidden/file']);
    expect(await f.told(flat)).toEqual([]);
  });

  test('a mount that was there is a rescan when it goes', async () => {
    await using f = fixture('mount/hidden');
    f.mount('-t', 'tmpfs', 'tmpfs', f.at('mount'));
    mkdirSync(f.at('mount/a'));
    const watch = await f.watch();
    writeFileSync(f.at('mount/a/file'), '');
    expect(await f.told(watch)).toEqual(['create mount/a/file']);
    unmount(f.at('mount'));
    expect(await next(watch)).toEqual(['rescan .']);
    writeFileSync(f.at('mount/hidden/file'), '');
    expect(await f.told(watch)).toEqual(['create mount/hidden/file']);
  });

  test('a network file system that does not answer is left out, and the watch goes on', async () => {
    needs('python3');
    await using f = fixture('mount');
    const watch = await f.watch();
    using _silent = await mountSilent(f.at('mount'));
    expect(await next(watch)).toEqual(['rescan .']);
    writeFileSync(f.at('file'), '');
    expect(await f.told(watch)).toEqual(['create file']);
  });
});

test('mounts elsewhere change nothing', async () => {
  await using f = fixture();
  mkdirSync(f.outside('root-2'));
  const watch = await f.watch();
  f.mount('-t', 'tmpfs', 'tmpfs', f.outside('root-2'));
  unmount(f.outside('root-2'));
  writeFileSync(f.at('file'), '');
  expect(await f.told(watch)).toEqual(['create file']);
});

test('many mounts at once', async () => {
  const names = Array.from({ length: 30 }, (_, n) => `${n}`);
  await using f = fixture(...names);
  const watch = await f.watch();
  for (const name of names) f.mount('-t', 'tmpfs', 'tmpfs', f.at(name));
  expect(await next(watch)).toEqual(['rescan .']);
  let probe = 0;
  await until('the last mount is watched', async () => {
    const name = `29/probe-${++probe}`;
    writeFileSync(f.at(name), '');
    return (await f.told(watch)).includes(`create ${name}`);
  });
  for (const name of names) writeFileSync(f.at(name, 'file'), '');
  expect((await f.told(watch)).sort()).toEqual(names.map((name) => `create ${name}/file`).sort());
});

test('a directory that is mounted twice is reported at both places', async () => {
  await using f = fixture('a/b', 'c');
  f.mount('--bind', f.at('a'), f.at('c'));
  const watch = await f.watch();
  writeFileSync(f.at('a/b/file'), '');
  expect((await f.told(watch)).sort()).toEqual(['create a/b/file', 'create c/b/file']);
});
