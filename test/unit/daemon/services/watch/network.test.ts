import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { describe, expect, type TestOptions, test } from 'vitest';
import type { Watch } from '../../../../../src/daemon/services/watch/watcher.ts';
import { reasonAgainst } from '../../../../support/machine/machine.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';
import { until } from '../../../../support/until.ts';

const ALLOWED = { allowNetworkMounts: true };
const reason = reasonAgainst('fuse');
const whenMounted: TestOptions = reason === null ? {} : { skip: true, meta: { notRun: reason } };

/** `dir` shows the content of `behind` through FUSE. */
class BindFixture extends WatchFixture {
  readonly behind: string;
  readonly mount: string;
  #server: ChildProcess | null = null;
  #rounds = 0;

  constructor(below = '') {
    super();
    this.behind = this.outside('behind');
    this.mount = below === '' ? this.dir : this.at(below);
    mkdirSync(this.behind);
    mkdirSync(this.mount, { recursive: true });
  }

  async bind(): Promise<this> {
    // Without caching by the kernel, so that polling does not depend on earlier accesses.
    const options = ['-f', '-o', 'entry_timeout=0,attr_timeout=0,negative_timeout=0'];
    this.#server = spawn('bindfs', [...options, this.behind, this.mount], { stdio: 'ignore' });
    const isMounted = () => readFileSync('/proc/self/mountinfo', 'utf8').includes(` ${this.mount} `);
    await until(`'${this.mount}' is mounted`, isMounted);
    return this;
  }

  /** Reads until that many events were reported, and on until everything was polled once more. */
  async exactly(watch: Watch, count: number): Promise<string[]> {
    const lines: string[] = [];
    const read = () => {
      lines.push(...(watch.take() ?? []).map(({ type, name }) => `${type} ${name}`));
      return lines;
    };
    await until(`${count} events are told`, read, ({ length }) => length >= count);
    // A directory is polled like everything else: a round passes between finding a file and missing it.
    const name = `polled-${this.#rounds++}`;
    const isMark = (line: string) => line.endsWith(name);
    writeFileSync(`${this.behind}/${name}`, '');
    await until('polling finds a file', read, (told) => told.some(isMark));
    rmSync(`${this.behind}/${name}`);
    await until('polling finds it gone', read, (told) =>
      told.some((l) => isMark(l) && l.startsWith('remove ')),
    );
    return lines.filter((line) => !isMark(line));
  }

  /** Ends the server; the mount stays, and answers with ENOTCONN. */
  end(): void {
    this.#server?.kill('SIGKILL');
  }

  hang(): void {
    this.#server?.kill('SIGSTOP');
  }

  answer(): void {
    this.#server?.kill('SIGCONT');
  }

  unmount(): void {
    execFileSync('umount', [this.mount]);
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    this.answer();
    spawnSync('umount', ['-l', this.mount]);
    this.#server?.kill('SIGKILL');
    await super[Symbol.asyncDispose]();
  }
}

// Concurrent: the time of these tests is that of polling, once a second.
describe('a FUSE mount', { ...whenMounted, concurrent: true }, () => {
  test('is refused without permission, by any path', async ({ expect }) => {
    await using f = await new BindFixture().bind();
    mkdirSync(f.at('directory'));
    symlinkSync(f.at('directory'), f.outside('link'));
    for (const path of [f.dir, f.at('directory'), f.outside('link')]) {
      await expect(f.watch({}, path)).rejects.toMatchObject({
        kind: 'invalid_argument',
        message: `cannot watch path on network filesystem: '${path}'`,
      });
    }
  });

  test('below the root makes a recursive watch fail', async ({ expect }) => {
    await using f = await new BindFixture('below').bind();
    await expect(f.watch()).rejects.toMatchObject({
      kind: 'invalid_argument',
      message: `cannot watch path on network filesystem: '${f.mount}'`,
    });
    const watch = await f.watch({ recursive: false });
    writeFileSync(f.at('file'), '');
    expect(await f.told(watch)).toEqual(['create file']);
  });

  test('changes made through it are reported at once, and not again by polling', async ({ expect }) => {
    await using f = await new BindFixture().bind();
    mkdirSync(f.at('a'));
    for (const name of ['old', 'written', 'changed']) writeFileSync(f.at(name), 'x');
    const watch = await f.watch(ALLOWED);
    appendFileSync(f.at('written'), 'more');
    chmodSync(f.at('changed'), 0o600);
    writeFileSync(f.at('a/file'), 'x');
    chmodSync(f.at('a/file'), 0o600);
    renameSync(f.at('a/file'), f.at('moved'));
    rmSync(f.at('old'));
    mkdirSync(f.at('b'));
    const told = await f.exactly(watch, 9);
    expect(told.filter((line) => line !== 'write a/file')).toEqual([
      'write written',
      'chmod changed',
      'create a/file',
      'chmod a/file',
      'rename a/file',
      'create moved',
      'remove old',
      'create b',
    ]);
  });

  test('changes made behind it are reported: CREATE, WRITE, CHMOD, REMOVE', async ({ expect }) => {
    await using f = await new BindFixture().bind();
    mkdirSync(f.at('a'));
    for (const name of ['written', 'changed', 'removed']) writeFileSync(f.at('a', name), 'x');
    const watch = await f.watch(ALLOWED);
    mkdirSync(`${f.behind}/new/below`, { recursive: true });
    writeFileSync(`${f.behind}/new/below/file`, 'x');
    appendFileSync(`${f.behind}/a/written`, 'more');
    chmodSync(`${f.behind}/a/changed`, 0o600);
    rmSync(`${f.behind}/a/removed`);
    expect((await f.exactly(watch, 6)).sort()).toEqual([
      'chmod a/changed',
      'create new',
      'create new/below',
      'create new/below/file',
      'remove a/removed',
      'write a/written',
    ]);
  });

  test('a rename behind it is reported as RENAME', async ({ expect }) => {
    await using f = await new BindFixture().bind();
    mkdirSync(f.at('directory'));
    writeFileSync(f.at('directory/below'), 'x');
    writeFileSync(f.at('file'), 'x');
    const watch = await f.watch(ALLOWED);
    renameSync(`${f.behind}/file`, `${f.behind}/renamed`);
    renameSync(`${f.behind}/directory`, `${f.behind}/elsewhere`);
    expect((await f.exactly(watch, 4)).sort()).toEqual([
      'create elsewhere',
      'create renamed',
      'rename directory',
      'rename file',
    ]);
  });

  test('a file found by polling is known when it is moved through the mount', async ({ expect }) => {
    await using f = await new BindFixture().bind();
    const watch = await f.watch(ALLOWED);
    mkdirSync(`${f.behind}/found`);
    writeFileSync(`${f.behind}/found/file`, 'x');
    expect(await f.exactly(watch, 2)).toEqual(['create found', 'create found/file']);
    renameSync(f.at('found'), f.at('moved'));
    expect(await f.exactly(watch, 2)).toEqual(['rename found', 'create moved']);
    writeFileSync(f.at('moved/file'), 'y', { flag: 'a' });
    expect(await f.exactly(watch, 1)).toEqual(['write moved/file']);
  });

  test('a watch that is not recursive does not poll below the root', async ({ expect }) => {
    await using f = await new BindFixture().bind();
    mkdirSync(f.at('a'));
    const watch = await f.watch({ ...ALLOWED, recursive: false });
    writeFileSync(`${f.behind}/a/file`, 'x');
    writeFileSync(`${f.behind}/file`, 'x');
    expect(await f.exactly(watch, 1)).toEqual(['create file']);
  });

  test('below a local root is watched when that is permitted', async ({ expect }) => {
    await using f = await new BindFixture('below/mount').bind();
    const watch = await f.watch(ALLOWED);
    writeFileSync(f.at('below/local'), '');
    writeFileSync(f.at('below/mount/through'), '');
    expect((await f.exactly(watch, 2)).sort()).toEqual(['create below/local', 'create below/mount/through']);
    writeFileSync(`${f.behind}/behind`, '');
    expect(await f.exactly(watch, 1)).toEqual(['create below/mount/behind']);
    f.unmount();
    // Polling may be the first to notice that they are missing.
    const gone = ['remove below/mount/behind', 'remove below/mount/through'];
    for (let last = ''; last !== 'rescan .'; ) {
      for (const { type, name } of (await watch.next()) ?? []) {
        last = `${type} ${name}`;
        expect([...gone, 'rescan .']).toContain(last);
      }
    }
    writeFileSync(f.at('below/mount/now local'), '');
    expect(await f.told(watch)).toEqual(['create below/mount/now local']);
  });

  test('is a rescan when it is unmounted, and what was below is watched', async ({ expect }) => {
    await using f = await new BindFixture().bind();
    const watch = await f.watch(ALLOWED);
    f.unmount();
    expect((await watch.next())?.map(({ type, name }) => `${type} ${name}`)).toEqual(['rescan .']);
    writeFileSync(f.at('below'), '');
    expect((await watch.next())?.at(0)).toMatchObject({ type: 'create', name: 'below' });
  });
});

describe('an unresponsive FUSE mount', whenMounted, () => {
  test('ends a watch with the error that polling meets', async () => {
    await using f = await new BindFixture().bind();
    const watch = await f.watch(ALLOWED);
    const failed = expect(watch.next()).rejects.toMatchObject({
      message: expect.stringContaining('ENOTCONN'),
    });
    f.end();
    await failed;
  });

  test('ends its watches with errors, and the daemon continues', async () => {
    await using f = await new BindFixture().bind();
    const watch = await f.watch(ALLOWED);
    f.hang();
    const failed = expect(watch.next()).rejects.toMatchObject({
      kind: 'unavailable',
      message: `cannot watch network filesystem '${f.mount}': it does not answer`,
    });
    const attempts = Array.from({ length: 8 }, () => f.watch(ALLOWED));
    const refused = { kind: expect.stringMatching(/deadline_exceeded|unavailable/) };
    await Promise.all(attempts.map((attempt) => expect(attempt).rejects.toMatchObject(refused)));
    // Some of the four threads of the pool are free.
    expect(await readFile('/proc/self/comm', 'utf8')).not.toBe('');
    await failed;
    f.answer();
    const again = await f.watch(ALLOWED);
    writeFileSync(f.at('file'), '');
    expect((await again.next())?.[0]).toMatchObject({ type: 'create', name: 'file' });
  });
});
