import { execFile } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parseAst } from 'rolldown/parseAst';
import { afterAll, describe, expect, test } from 'vitest';
import { findCgroupMount } from '../src/daemon/linux/cgroups/cgroup-mounts.ts';
import { mutantsIn, sampleOf } from './mutants/choice.ts';
import { Isolation } from './mutants/isolation.ts';
import { mutated, mutationsOf } from './mutants/mutations.ts';
import { Rooms } from './mutants/rooms.ts';
import { needs } from './support/machine/needs.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url)).replace(/\/$/, '');
const PROGRAM = join(ROOT, 'test/mutants/run.ts');
/** A line that two mutations change. */
const TALLY = 'src/base/tally.ts';
const COUNTS = `${TALLY}:${1 + readFileSync(join(ROOT, TALLY), 'utf8').split('\n').indexOf('    this.count++;')}`;
const scratch = mkdtempSync(join(tmpdir(), 'envd-mutants-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

/** The changed sources. */
const changesOf = (source: string) => mutationsOf(source).map((mutation) => mutated(source, mutation));

describe('mutations', () => {
  test.each([
    ['const a = b === 1;', ['const a = b !== 1;']],
    ['const a = b < 1;', ['const a = b <= 1;', 'const a = b >= 1;']],
    ['const a = b >= 1;', ['const a = b > 1;', 'const a = b < 1;']],
    ['const a = b && c;', ['const a = b || c;']],
    ['const a = b ?? c;', ['const a = b;']],
    ['const a = b - 1;', ['const a = b + 1;']],
    ['const a = true;', ['const a = false;']],
    ['const a = !(b + c);', ['const a = (b + c);', 'const a = !(b - c);']],
    ['const a = b ? 1 : 2;', ['const a = !(b) ? 1 : 2;']],
    ['const a = await b;', ['const a = (b);']],
    ['const a = () => 1;', ['const a = () => undefined;']],
    ['const a = () => ({ b });', ['const a = () => (undefined);']],
    ['function a() { return b; }', ['function a() { return undefined; }']],
    ['if (a) b();', ['if (!(a)) b();', 'if (a) ;']],
    ['while (a) b();', ['while (false) b();', 'while (a) ;']],
    ['throw a;', [';']],
    ['for (;;) a++;', ['for (;;) a--;', 'for (;;) ;']],
    ['a += 1;', [';', 'a -= 1;']],
  ])('of %j', (source, wanted) => {
    expect(changesOf(source).sort()).toEqual(wanted.toSorted());
  });

  test.each([
    ['a text that is joined', 'const a = "b" + c;'],
    ['a type', 'type A = true | (B extends C ? true : false); let a: A<true>;'],
    ['an annotation', 'function a(b: true): asserts b is true {}'],
    ['a log line', "this.#parts.logger.info({ a }, 'b'); logger.error(a);"],
    ['a directive', "'use strict';"],
    ['a call of the parent', 'class A extends B { constructor() { super(); } }'],
    ['nothing', 'function a() { return undefined; } const b = () => null;'],
  ])('none of %s', (_, source) => {
    expect(changesOf(source)).toEqual([]);
  });

  test('an as expression is looked into', () => {
    expect(changesOf('const a = (b === 1) as true;')).toEqual(['const a = (b !== 1) as true;']);
  });

  test('each is in its line', () => {
    expect(mutationsOf('a;\n\nconst b = c === 1;').map(({ line }) => line)).toEqual([1, 3]);
  });
});

describe('the choice', () => {
  test('the same seed chooses the same mutants, none twice', () => {
    const all = Array.from({ length: 1000 }, (_, i) => i);
    const some = sampleOf(all, 100, 7);
    expect(sampleOf(all, 100, 7)).toEqual(some);
    expect(sampleOf(all, 100, 8)).not.toEqual(some);
    expect(new Set(some).size).toBe(100);
    expect(sampleOf([3, 1, 2], 5, 7)).toEqual([3, 1, 2]);
  });

  test('every one is a program', () => {
    for (const mutant of sampleOf(mutantsIn(ROOT, { only: null, at: [] }), 150, 11)) {
      const source = readFileSync(join(ROOT, mutant.file), 'utf8');
      expect(() => parseAst(mutated(source, mutant), { lang: 'ts' }), mutant.file).not.toThrow();
    }
  });

  test('by glob, and by line', () => {
    const files = new Set(mutantsIn(ROOT, { only: 'src/base/t*.ts', at: [] }).map(({ file }) => file));
    expect(files).toContain(TALLY);
    expect(files).not.toContain('src/base/errors.ts');
    const there = mutantsIn(ROOT, { only: null, at: [COUNTS] });
    expect(there.map(({ after }) => after)).toEqual(['this.count--', ';']);
    expect(() => mutantsIn(ROOT, { only: 'src/none/**', at: [] })).toThrow('src/none/**');
    // Cases of the conformance suite are tests themselves.
    expect(() => mutantsIn(ROOT, { only: 'src/conformance/cases/**', at: [] })).toThrow('cases');
  });
});

describe('the tests of a file', () => {
  const rooms = new Rooms(ROOT, false);

  test('are those that mirror or import it, a part of the contract, and those of its room', () => {
    const [unit, contract, over, attacks] = rooms.stagesOf('src/daemon/services/files/entries/metadata.ts');
    expect(unit?.names[0]).toBe('test/unit/daemon/services/files/entries/metadata.test.ts');
    expect(contract).toEqual({ kind: 'contract', names: expect.arrayContaining(['5.3']) });
    expect(over?.names).toContain('test/daemon/files/durable.test.ts');
    expect(attacks?.names).toContain('test/attack/files/uploads.test.ts');
    expect(new Rooms(ROOT, true).stagesOf('src/daemon/services/files/entries/metadata.ts')).toHaveLength(3);
  });

  test.each([
    ['src/daemon/extensions/zip/zip.ts', 'daemon/extensions/zip.test.ts'],
    ['src/daemon/extensions/copy/copy.ts', 'attack/files/extensions.test.ts'],
    ['src/daemon/http/websocket/handshake.ts', 'attack/extensions/websockets.test.ts'],
    ['src/gateway/api/creations.ts', 'gateway/create.test.ts'],
    ['src/gateway/expiry/machine-maker.ts', 'attack/gateway/creations.test.ts'],
    ['src/gateway/routes/preview-gate.ts', 'attack/gateway/previews.test.ts'],
    ['src/cli/console/server/routes.ts', 'attack/console/server.test.ts'],
    ['src/cli/console/page/wire/lanes.ts', 'cli/console/terminals.test.ts'],
  ])('%s: %s is one of them', (file, wanted) => {
    expect(existsSync(join(ROOT, file))).toBe(true);
    expect(rooms.stagesOf(file).flatMap(({ names }) => names)).toContain(`test/${wanted}`);
  });

  test('are there for every file with a statement', () => {
    const files = globSync('src/**/*.ts', { cwd: ROOT, exclude: ['src/gen/**'] });
    const stages = files.flatMap((file) => rooms.stagesOf(file));
    expect(files.filter((file) => rooms.stagesOf(file).length === 0)).toEqual([]);
    const names = stages.flatMap((stage) => (stage.kind === 'tests' ? stage.names : []));
    expect(names.filter((name) => !existsSync(join(ROOT, name)))).toEqual([]);
  });
});

const cgroups = () => readdirSync(findCgroupMount() ?? '').filter((name) => name.startsWith('envd-mutants-'));

describe('isolation', () => {
  test('files, cgroups and processes of a script are gone, and those outside are not seen', async () => {
    needs('mounts', 'cgroup v2', 'ip');
    const kept = join(scratch, 'kept');
    writeFileSync(kept, 'kept');
    await using isolation = new Isolation();
    const script = `
      rm -rf '${scratch}' /dev/null
      mkdir -p /sys/fs/cgroup/a/b
      setsid sleep 7654 </dev/null >/dev/null 2>&1 &
      echo $! >/sys/fs/cgroup/a/b/cgroup.procs
      kill -0 ${process.pid} 2>/dev/null && echo seen
      ls '${scratch}' 2>&1 | grep -c kept || true
      exit 3`;
    expect(await isolation.run(script, {}, 120_000)).toEqual({ code: 3, stdout: '0\n' });
    expect(readFileSync(kept, 'utf8')).toBe('kept');
    expect(existsSync('/dev/null')).toBe(true);
    const sleeping = globSync('/proc/[0-9]*/cmdline').filter((file) => {
      try {
        return readFileSync(file, 'utf8') === 'sleep\x007654\0';
      } catch {
        return false;
      }
    });
    expect(sleeping).toEqual([]);
  });

  test('what does not end is ended, with all that it has started', async () => {
    needs('mounts', 'cgroup v2', 'ip');
    const isolation = new Isolation();
    const run = (limitMs: number) => isolation.run('echo begun; sleep 1000 & sleep 1000', {}, limitMs);
    let outcome = await run(2000);
    // On a busy machine a run may reach its limit before it has begun.
    for (let limitMs = 4000; outcome.stdout === ''; limitMs *= 2) outcome = await run(limitMs);
    await isolation[Symbol.asyncDispose]();
    expect(outcome).toEqual({ code: null, stdout: 'begun\n' });
    expect(cgroups().filter((name) => name.startsWith(`envd-mutants-${process.pid}-`))).toEqual([]);
  });
});

describe('npm run mutants', () => {
  const run = promisify(execFile);

  test('tells which are found and by which test, and changes nothing', async () => {
    needs('mounts', 'cgroup v2', 'ip');
    const file = join(ROOT, TALLY);
    const before = readFileSync(file, 'utf8');
    const report = join(scratch, 'report');
    const args = [PROGRAM, '--at', COUNTS, '--report', report];
    const { stdout } = await run(process.execPath, args, { cwd: tmpdir() });
    expect(stdout).toContain(`killed     ${COUNTS} arithmetic: this.count++ → this.count--`);
    expect(stdout).toMatch(/^ +by test\/unit\/.+\.test\.ts: \w/m);
    expect(stdout).toContain('2 killed, 0 timed out, 0 survived: 100 % found');
    const { verdicts } = JSON.parse(readFileSync(report, 'utf8'));
    expect(verdicts.map(({ outcome }: { outcome: string }) => outcome)).toEqual(['killed', 'killed']);
    expect(readFileSync(file, 'utf8')).toBe(before);
  });

  test.each([
    [['0'], "COUNT is a positive number, not '0'"],
    [['--only', 'src/none/**'], "nothing can be changed in 'src/none/**'"],
    [['--sideways'], '--sideways'],
  ])('%j: exit code 2 and the usage', async (args, message) => {
    const failed = run(process.execPath, [PROGRAM, ...args]);
    await expect(failed).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
    await expect(failed).rejects.toMatchObject({ stderr: expect.stringContaining('npm run mutants') });
  });
});
