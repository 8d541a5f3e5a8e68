import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, renameSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { untilEnd, WatchFixture } from '../../../../support/services/watch.ts';

function fixture(...directories: string[]): WatchFixture {
  const made = new WatchFixture();
  mkdirSync(made.dir);
  for (const directory of directories) mkdirSync(made.at(directory), { recursive: true });
  return made;
}

describe.each([true, false])('the watched directory itself, recursive: %s', (recursive) => {
  test('deleted: REMOVE of ., then the end', async () => {
    await using f = fixture();
    writeFileSync(f.at('file'), '');
    const watch = await f.watch({ recursive });
    rmSync(f.dir, { recursive: true });
    expect(await untilEnd(watch)).toEqual(['remove file', 'remove .']);
    expect(await watch.next()).toBeNull();
  });

  test('deleted while a process is in it', async () => {
    await using f = fixture();
    const watch = await f.watch({ recursive });
    const holder = spawn('sleep', ['60'], { cwd: f.dir });
    await once(holder, 'spawn');
    rmdirSync(f.dir);
    expect(await untilEnd(watch)).toEqual(['remove .']);
    holder.kill();
    await once(holder, 'exit');
  });

  test('deleted and made again', async () => {
    await using f = fixture();
    const watch = await f.watch({ recursive });
    rmdirSync(f.dir);
    mkdirSync(f.dir);
    writeFileSync(f.at('file'), '');
    expect(await untilEnd(watch)).toEqual(['remove .']);
  });

  test('moved: RENAME of ., then the end', async () => {
    await using f = fixture();
    const watch = await f.watch({ recursive });
    writeFileSync(f.at('file'), '');
    renameSync(f.dir, f.outside('elsewhere'));
    writeFileSync(f.outside('elsewhere/late'), '');
    expect(await untilEnd(watch)).toEqual(['create file', 'rename .']);
  });

  test('moved with a directory above it', async () => {
    await using f = fixture('a/b');
    const watch = await f.watch({ recursive }, f.at('a/b'));
    renameSync(f.at('a'), f.at('c'));
    expect(await untilEnd(watch)).toEqual(['rename .']);
  });

  test('replaced by another directory', async () => {
    await using f = fixture();
    mkdirSync(f.outside('other'));
    const watch = await f.watch({ recursive });
    renameSync(f.outside('other'), f.dir);
    expect(await untilEnd(watch)).toEqual(['remove .']);
  });

  test('changes beside it are not reported', async () => {
    await using f = fixture();
    const watch = await f.watch({ recursive });
    mkdirSync(f.outside('other'));
    rmdirSync(f.outside('other'));
    expect(await f.told(watch)).toEqual([]);
  });
});

test('/ can be watched', async () => {
  await using f = fixture();
  const watch = await f.watch({ recursive: false }, '/');
  const name = `envd-test-${process.pid}`;
  mkdirSync(`/${name}`);
  rmdirSync(`/${name}`);
  const events: string[] = [];
  while (!events.includes(`remove ${name}`)) {
    for (const event of (await watch.next()) ?? []) events.push(`${event.type} ${event.name}`);
  }
  expect(events).toContain(`create ${name}`);
});
