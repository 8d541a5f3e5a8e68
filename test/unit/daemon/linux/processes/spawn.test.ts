import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, closeSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Cgroup } from '../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import { PipePoller } from '../../../../../src/daemon/linux/processes/pipe-ends.ts';
import { Terminal } from '../../../../../src/daemon/linux/processes/pty.ts';
import {
  followProcess,
  type Launch,
  type ProcessExit,
  spawn,
  spawnWithPipes,
  UNKNOWN_EXIT,
} from '../../../../../src/daemon/linux/processes/spawn.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';
import type { User } from '../../../../../src/daemon/linux/system/users.ts';
import { testCgroup } from '../../../../support/machine/cgroups.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ROOT } from '../../../../support/machine/users.ts';

const poller = new PipePoller();

const NOBODY: User = { ...ROOT, name: 'nobody', uid: 65534, gid: 65534, groups: [65534] };
const PATH = '/usr/bin:/bin';

function launch(file: string, args: readonly string[] = [], rest: Partial<Launch> = {}): Launch {
  return {
    file,
    args: [file, ...args],
    environment: { PATH },
    cwd: '/',
    user: ROOT,
    cgroup: null,
    limitMs: 10_000,
    ...rest,
  };
}

const sh = (script: string, rest: Partial<Launch> = {}) => launch('/bin/sh', ['-c', script], rest);

async function textOf(descriptor: number): Promise<string> {
  const chunks: Buffer[] = [];
  await poller.read(descriptor, (bytes) => chunks.push(bytes)).closed;
  return Buffer.concat(chunks).toString();
}

async function run(what: Launch): Promise<{ stdout: string; stderr: string; exit: ProcessExit }> {
  const { process: started, pipes } = await spawnWithPipes(what, false);
  const [stdout, stderr, exit] = await Promise.all([
    textOf(pipes.stdout),
    textOf(pipes.stderr),
    started.exit,
  ]);
  return { stdout, stderr, exit };
}

const descriptors = () => readdirSync('/proc/self/fd').length;

describe('a process gets', () => {
  test('its arguments, environment and directory, byte for byte', async () => {
    const script = 'printf "%s|" "$0" "$@"; pwd; env | sort';
    const what = launch('/bin/sh', ['-c', script, 'zero', 'ü', '', 'a b\n'], {
      environment: { PATH, EMPTY: '', UMLAUT: 'ä=ö' },
      cwd: '/tmp',
    });
    const { stdout } = await run(what);
    expect(stdout).toBe(`zero|ü||a b\n|/tmp\nEMPTY=\nPATH=${PATH}\nPWD=/tmp\nUMLAUT=ä=ö\n`);
  });

  test('variables of any length', async () => {
    for (const length of [7_000, 8_000, 9_000, 100_000]) {
      const environment = { PATH, LONG: 'x'.repeat(length) };
      expect((await run(sh('printf %s "$LONG"', { environment }))).stdout).toBe(environment.LONG);
    }
  });

  test('an exit status that distinguishes codes and signals', async () => {
    expect((await run(sh('exit 137'))).exit).toMatchObject({ code: 137, signal: null });
    expect((await run(sh('kill -9 $$'))).exit).toMatchObject({ code: null, signal: 9 });
    // A real-time signal, which libuv reports as exit code 0.
    expect((await run(launch('/bin/bash', ['-c', 'kill -40 $$']))).exit).toMatchObject({
      code: null,
      signal: 40,
    });
  });

  test('pipes as stdio that can be opened by name', async () => {
    const { stdout } = await run(
      sh('echo a >/dev/stdout; echo b >/proc/self/fd/1; readlink /proc/self/fd/2'),
    );
    expect(stdout).toMatch(/^a\nb\npipe:\[\d+\]\n$/);
  });
});

describe('identity', () => {
  const user: User = { ...NOBODY, uid: 4711, gid: 4712, groups: [4712, 4713, 60_000, 4_000_000_000] };

  test('uid, gid and the supplementary groups are exactly those of the user', async () => {
    const { stdout } = await run(
      launch('/bin/grep', ['-E', '^(Uid|Gid|Groups):', '/proc/self/status'], { user }),
    );
    expect(stdout.replace(/ +$/gm, '')).toBe(
      'Uid:\t4711\t4711\t4711\t4711\nGid:\t4712\t4712\t4712\t4712\nGroups:\t4712 4713 60000 4000000000\n',
    );
  });

  test('a user without supplementary groups gets none', async () => {
    const { stdout } = await run(
      launch('/bin/grep', ['^Groups:', '/proc/self/status'], { user: { ...user, groups: [] } }),
    );
    expect(stdout.trim()).toBe('Groups:');
  });

  test('a user other than root has no capabilities', async () => {
    const { stdout } = await run(
      launch('/bin/grep', ['-E', '^Cap(Prm|Eff):', '/proc/self/status'], { user }),
    );
    expect(stdout).toBe('CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n');
  });
});

describe('descriptors', () => {
  /** Whether a descriptor of this process is inherited over execve. Source: proc_pid_fdinfo(5). */
  function inheritable(fd: string): boolean {
    const flags = /^flags:\s+([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1] ?? '';
    return (Number.parseInt(flags, 8) & 0o2000000) === 0;
  }

  test('the daemon’s descriptors are not inherited, with or without close-on-exec', async () => {
    const files = Array.from({ length: 300 }, () => openSync('/dev/null', 'r'));
    const inherited = files.slice(0, 10).map((fd) => native.duplicate(fd, true));
    onTestFinished(() => {
      for (const fd of [...files, ...inherited]) closeSync(fd);
    });
    const own = readdirSync('/proc/self/fd').filter((fd) => Number(fd) > 2);
    const wouldLeak = own.filter((fd) => {
      try {
        return inheritable(fd);
      } catch {
        return false; // That of the listing itself.
      }
    });
    expect(wouldLeak.length).toBeGreaterThanOrEqual(inherited.length);
    // A shell that waits for `ls` has finished starting; a new process may still be loading its libraries.
    const { stdout } = await run(sh('ls /proc/$$/fd; true'));
    expect(stdout).toBe('0\n1\n2\n');
  });

  test('no descriptor is left open by starts that succeed or fail', async () => {
    await run(sh('true'));
    const before = descriptors();
    for (let count = 0; count < 20; count++) {
      await run(sh('true'));
      await run(launch('/none')).catch(() => {});
    }
    // The sockets of the last start are closed a moment later.
    await expect.poll(descriptors).toBeLessThanOrEqual(before);
  });
});

describe('a failed start names the step and the error', () => {
  const failure = (what: Launch) =>
    run(what).then(
      () => null,
      (error: unknown) => error,
    );

  test('a missing file', async () => {
    expect(await failure(launch('/none/such'))).toMatchObject({
      kind: 'not_found',
      message: "cannot start '/none/such': ENOENT: no such file or directory",
    });
  });

  test('a file that is not executable, or not by this user', async () => {
    const file = join(scratch(), 'file');
    writeFileSync(file, 'text');
    const message = `cannot start '${file}': EACCES: permission denied`;
    expect(await failure(launch(file))).toMatchObject({ kind: 'invalid_argument', message });
    chmodSync(file, 0o700);
    expect(await failure(launch(file, [], { user: NOBODY }))).toMatchObject({ message });
  });

  test('a file that is no program', async () => {
    const file = join(scratch(), 'file');
    writeFileSync(file, '\0text', { mode: 0o755 });
    expect(await failure(launch(file))).toMatchObject({
      kind: 'invalid_argument',
      message: `cannot start '${file}': ENOEXEC: exec format error`,
    });
  });

  test('a missing interpreter', async () => {
    const file = join(scratch(), 'script');
    writeFileSync(file, '#!/none/interpreter\n', { mode: 0o755 });
    expect(await failure(launch(file))).toMatchObject({ kind: 'not_found' });
  });

  test('arguments that are too long', async () => {
    expect(await failure(launch('/bin/true', ['x'.repeat(200_000)]))).toMatchObject({
      kind: 'invalid_argument',
      message: "cannot start '/bin/true': E2BIG: argument list too long",
    });
  });

  test.each([
    ['/none', "cwd '/none' does not exist"],
    ['/etc/passwd', "cwd '/etc/passwd' is not a directory"],
    [
      `/${'x'.repeat(300)}`,
      `cannot enter cwd '/${'x'.repeat(300)}' as user 'root': ENAMETOOLONG: name too long`,
    ],
  ])('a cwd that cannot be entered: %s', async (cwd, message) => {
    expect(await failure(sh('', { cwd }))).toMatchObject({ kind: 'invalid_argument', message });
  });

  test('a cwd that only root may enter is entered as the user', async () => {
    const closed = join(scratch(), 'closed');
    mkdirSync(closed, { mode: 0o700 });
    expect(await failure(sh('', { cwd: closed, user: NOBODY }))).toMatchObject({
      kind: 'permission_denied',
      message: `cannot enter cwd '${closed}' as user 'nobody': EACCES: permission denied`,
    });
  });

  test('a cgroup below a frozen one, where the child would stop before execve and block its parent', async () => {
    using top = testCgroup();
    const before = descriptors();
    for (const parent of [top, Cgroup.create(`${top.path}/between`)]) {
      top.freeze();
      expect(await failure(sh('', { cgroup: `${parent.path}/leaf` }))).toMatchObject({
        kind: 'unavailable',
        message: 'cannot start a process: the workload is frozen',
      });
      expect(parent.child('leaf').processes()).toEqual([]);
      top.thaw();
      expect(parent.child('leaf').remove()).toBe(true);
      expect((await run(sh('cat /proc/self/cgroup', { cgroup: `${parent.path}/leaf` }))).stdout).toContain(
        '/leaf\n',
      );
    }
    await expect.poll(descriptors).toBeLessThanOrEqual(before);
  });

  test('a descriptor that is no terminal', async () => {
    const fd = openSync('/dev/null', 'r+');
    onTestFinished(() => closeSync(fd));
    await expect(spawn(sh(''), fd)).rejects.toMatchObject({
      kind: 'internal',
      message: expect.stringMatching(/^cannot start '\/bin\/sh': set controlling terminal: ENOTTY: /),
    });
  });
});

test('a terminal becomes the controlling terminal of the process', async () => {
  const chunks: Buffer[] = [];
  const read = (master: number) => poller.read(master, (bytes) => chunks.push(bytes));
  const terminal = Terminal.open({ cols: 80, rows: 24 }, ROOT, read);
  onTestFinished(() => terminal[Symbol.dispose]());
  const started = await spawn(sh('echo from the terminal >/dev/tty'), terminal.slave);
  await started.exit;
  terminal.drain();
  expect(String(Buffer.concat(chunks))).toBe('from the terminal\r\n');
});

test('more starts than the starter can be sent at once', async () => {
  const environment = { PATH, LONG: 'x'.repeat(7_000) };
  const starts = Array.from({ length: 100 }, (_, index) => run(sh(`exit ${index}`, { environment })));
  const codes = (await Promise.all(starts)).map(({ exit }) => exit.code);
  expect(codes).toEqual(Array.from(starts.keys()));
});

test('short-lived processes do not interrupt the event loop', async () => {
  const library = join(scratch(), 'interrupted.so');
  const fixture = (name: string) => fileURLToPath(new URL(`../../../../support/${name}`, import.meta.url));
  needs('cc');
  execFileSync('cc', ['-shared', '-fPIC', '-o', library, fixture('attackers/interrupted.c'), '-ldl']);
  using parent = testCgroup();
  const { stderr } = spawnSync(process.execPath, [fixture('workers/short-starts.ts'), parent.path, '200'], {
    env: { ...process.env, LD_PRELOAD: library },
    encoding: 'utf8',
  });
  expect(stderr).toContain('interrupted 0 times\n');
});

test('the exit of a process that cannot be followed is unknown', async () => {
  // pidfd_open(2) refuses this pid with EINVAL, as it does others with EMFILE and ENOMEM.
  const followed = followProcess(0, null, true);
  expect(followed).toMatchObject({ pidfd: null, isChild: false });
  expect(await followed.exit).toEqual(UNKNOWN_EXIT);
});
