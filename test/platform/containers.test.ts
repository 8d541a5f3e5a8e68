import { spawn } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { CommandExitError, Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { Platform } from '../../examples/platform/platform.ts';
import { findCgroupMount } from '../../src/daemon/linux/cgroups/cgroup-mounts.ts';
import { reasonAgainst } from '../support/machine/machine.ts';
import { needs } from '../support/machine/needs.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startTestPlatform, testPlace } from '../support/programs/platform.ts';
import { rejection } from '../support/programs/sandbox.ts';
import { runTour } from '../support/programs/tour.ts';
import { freePort } from '../support/servers/free-port.ts';
import { until } from '../support/until.ts';

const MAIN = fileURLToPath(new URL('../../examples/platform/main.ts', import.meta.url));
/** A root file system is built of Debian's packages the first time. */
const BUILD_MS = 600_000;

let platform: Platform;

beforeAll(async () => {
  if (reasonAgainst('containers') === null) platform = await startTestPlatform();
}, BUILD_MS);

afterAll(() => platform?.[Symbol.asyncDispose]());

const options = () => ({
  apiKey: platform.key,
  apiUrl: platform.url,
  sandboxUrl: platform.url,
  timeoutMs: 120_000,
});

async function create(): Promise<Sandbox> {
  needs('containers');
  const sandbox = await Sandbox.create(options());
  onTestFinished(async () => void (await sandbox.kill()));
  return sandbox;
}

const shell = async (sandbox: Sandbox, command: string) =>
  (await sandbox.commands.run(command)).stdout.trim();

/** The processes of this machine that are in the cgroup of a sandbox. */
function processesOf(id: string): string[] {
  return readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(`/${id}`);
    } catch {
      return false;
    }
  });
}

/** The file cgroup.events of a sandbox: its daemon has frozen its clients' processes in cgroups below. */
function eventsOf(id: string): string {
  const path = readFileSync(`/proc/${processesOf(id)[0]}/cgroup`, 'utf8').match(
    new RegExp(`^0::(.*/${id})`, 'm'),
  );
  return readFileSync(join(findCgroupMount() ?? '', path?.[1] ?? '', 'cgroup.events'), 'utf8');
}

test("the published client's first example", async () => {
  needs('containers');
  const sandbox = await Sandbox.create('base', {
    ...options(),
    envs: { GREETING: 'hello' },
    metadata: { user: 'ada' },
  });
  expect(await shell(sandbox, 'echo $GREETING; id -un; pwd')).toBe('hello\nuser\n/home/user');
  await sandbox.files.write('poem.txt', 'roses');
  expect(await sandbox.files.read('/home/user/poem.txt')).toBe('roses');
  expect(await shell(sandbox, `python3 -c 'print(6 * 7)'; sudo id -un`)).toBe('42\nroot');
  expect(await rejection(sandbox.commands.run('exit 3'))).toBeInstanceOf(CommandExitError);
  expect((await sandbox.getInfo()).metadata).toEqual({ user: 'ada' });
  const home = join(platform.directory, 'sandboxes', sandbox.sandboxId);
  expect(existsSync(home)).toBe(true);
  expect(await sandbox.kill()).toBe(true);
  expect(existsSync(home)).toBe(false);
  expect(await sandbox.isRunning()).toBe(false);
});

test('only the template of the root file system is known', async () => {
  needs('containers');
  expect(String(await rejection(Sandbox.create('other', options())))).toContain(
    "template 'other' is not known",
  );
});

test('a paused sandbox stands still, and goes on with its memory', async () => {
  const sandbox = await create();
  const { sandboxId: id } = sandbox;
  await sandbox.commands.run('i=0; while :; do i=$((i+1)); echo $i >/tmp/count; sleep 0.02; done', {
    background: true,
  });
  const count = () => readFileSync(join(platform.directory, 'sandboxes', id, 'upper/tmp/count'), 'utf8');
  const first = await until('it counts', () =>
    existsSync(join(platform.directory, 'sandboxes', id, 'upper/tmp/count')) ? count() : '',
  );
  await until('it goes on', () => count() !== first);
  expect(await Sandbox.pause(id, options())).toBe(true);
  expect(eventsOf(id)).toContain('frozen 1');
  const paused = count();
  // Time itself is tested: ten turns of the loop.
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(count()).toBe(paused);
  const resumed = await Sandbox.connect(id, options());
  // The file is empty for a moment whenever it is written.
  await until('it counts again', () => Number(count()) > Number(paused));
  const seen = () => shell(resumed, 'cat /tmp/count');
  await until('it shows that', seen, (text) => Number(text) > Number(paused));
});

test('a sandbox is removed however it has left its files', async () => {
  const sandbox = await create();
  // Deeper than a path can be long, and without any right.
  const nest = 'import os\nfor _ in range(3000):\n  os.mkdir("deeper" * 5)\n  os.chdir("deeper" * 5)\n';
  await sandbox.files.write('nest.py', nest);
  await sandbox.commands.run('python3 nest.py; mkdir locked; touch locked/file; chmod 0 locked');
  expect(await sandbox.kill()).toBe(true);
  expect(existsSync(join(platform.directory, 'sandboxes', sandbox.sandboxId))).toBe(false);
});

test('its files may be behind a symbolic link', async () => {
  needs('containers');
  const place = scratch();
  // Users of containers need a way to their files.
  chmodSync(place, 0o755);
  const directory = join(place, 'link');
  symlinkSync(testPlace().directory, directory);
  await using linked = await startTestPlatform(() => {}, { directory });
  const to = { apiKey: linked.key, apiUrl: linked.url, sandboxUrl: linked.url };
  const sandbox = await Sandbox.create(to);
  expect(await shell(sandbox, 'echo here')).toBe('here');
  expect(await sandbox.kill()).toBe(true);
  expect(readdirSync(join(linked.directory, 'sandboxes'))).toEqual([]);
});

test("the quota of its owner bounds a sandbox's memory", async () => {
  needs('containers');
  const keys = join(scratch(), 'keys');
  writeFileSync(keys, 'platform another-key\nclient ada key-of-ada\nquota ada memory=256 sandboxes=1\n');
  await using limited = await startTestPlatform(() => {}, { flags: [`--key-file=${keys}`] });
  const to = { apiKey: 'key-of-ada', apiUrl: limited.url, sandboxUrl: limited.url, validateApiKey: false };
  const sandbox = await Sandbox.create(to);
  expect(await sandbox.getInfo()).toMatchObject({ memoryMB: 256 });
  expect(await shell(sandbox, 'echo here')).toBe('here');
  expect(String(await rejection(Sandbox.create(to)))).toContain('quota sandboxes');
  expect(await sandbox.kill()).toBe(true);
});

test('a sandbox whose time is up is removed', async () => {
  const sandbox = await create();
  const home = join(platform.directory, 'sandboxes', sandbox.sandboxId);
  await sandbox.setTimeout(500);
  await until('it is gone', () => !existsSync(home));
  expect(await sandbox.isRunning()).toBe(false);
});

test('a preview of any port is opened by its name', async () => {
  const sandbox = await create();
  await sandbox.files.write('site/index.html', 'hello');
  // One listens at all addresses, and one at localhost only, whose port the daemon forwards.
  await sandbox.commands.run('exec python3 -m http.server 3000 --directory site', { background: true });
  await sandbox.commands.run('exec python3 -m http.server 3001 --bind 127.0.0.1 --directory site', {
    background: true,
  });
  for (const port of [3000, 3001]) {
    const get = () =>
      new Promise<string>((resolve, reject) => {
        const headers = { host: sandbox.getHost(port) };
        request({ host: '127.0.0.1', port: new URL(platform.url).port, headers }, (response) =>
          response.toArray().then((parts) => resolve(parts.join('')), reject),
        )
          .on('error', reject)
          .end();
      });
    expect(await until(`port ${port} answers`, get, (text) => text === 'hello')).toBe('hello');
  }
});

test('a sandbox reaches neither another one, nor the gateway, nor this machine, nor a network', async () => {
  const [one, other] = [await create(), await create()];
  const address = await shell(other, 'hostname -I');
  const reach = (to: string, limit = '--max-time 1') =>
    shell(one, `curl -s ${limit} -o /dev/null -w '%{http_code}' ${to} || true`);
  expect(await reach(`http://${await shell(one, 'hostname -I')}:49983/health`, '')).toBe('204');
  const { port } = new URL(platform.url);
  for (const to of [
    `${address}:49983/health`,
    '10.213.0.1:49980/',
    `10.213.0.1:${port}/`,
    `127.0.0.1:${port}/`,
    '192.0.2.1/',
  ])
    expect([to, await reach(`http://${to}`)]).toEqual([to, '000']);
  // A route to all of the world is refused to root, too.
  expect(await rejection(one.commands.run('sudo ip route add default via 10.213.0.1'))).toBeInstanceOf(
    CommandExitError,
  );
});

test('root in a sandbox is nobody on this machine', async () => {
  const sandbox = await create();
  await sandbox.commands.run(
    'sudo sh -c "echo x >/tmp/of-root; chmod 4755 /tmp/of-root; sleep 1000 & echo \\$! >/tmp/pid"',
  );
  const home = join(platform.directory, 'sandboxes', sandbox.sandboxId);
  expect(readdirSync(join(home, 'upper/tmp')).length).toBeGreaterThan(0);
  // unshare(2) is refused, and clone(2) with CLONE_NEWUSER makes one, too.
  await sandbox.files.write(
    'clone.py',
    'import ctypes, os\n' +
      'number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]\n' +
      'pid = ctypes.CDLL(None).syscall(number, 0x10000000 | 17, 0, 0, 0, 0)\n' +
      'os._exit(0 if pid >= 0 else 1)\n',
  );
  const refused = [
    'python3 /home/user/clone.py',
    'mount -t tmpfs none /mnt',
    'unshare --user true',
    'unshare --mount true',
    'dmesg',
    'mknod /tmp/disk b 8 0',
  ];
  for (const each of [
    ...refused,
    'echo 1 >/proc/sys/kernel/panic',
    'echo 9 >/proc/sys/user/max_user_namespaces',
    'ls /sys/kernel/debug/x',
  ])
    expect([
      each,
      await shell(sandbox, `sudo sh -c '${each}' >/dev/null 2>&1 && echo done || echo refused`),
    ]).toEqual([each, 'refused']);
  expect(await shell(sandbox, 'cat /proc/self/uid_map')).toMatch(/^0 +2130706432 +65536$/);
  // It sees its own processes and cgroups only.
  expect(await shell(sandbox, 'ps -e -o comm= | head -1')).toBe('tini');
  expect(await shell(sandbox, 'ls /sys/fs/cgroup | grep envd-platform || echo none')).toBe('none');
});

test('a sandbox has its share of what all of them share, and no way past networks', async () => {
  const sandbox = await create();
  await sandbox.files.write(
    'take.py',
    `import ctypes, os, socket
libc = ctypes.CDLL(None)
def count(take, most):
    taken = 0
    while taken < most and take() >= 0:
        taken += 1
    return taken
def terminal():
    try:
        return os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return -1
def vsock(family):
    # AF_VSOCK, SOCK_STREAM
    return libc.syscall({"x86_64": 41, "aarch64": 198}[os.uname().machine], ctypes.c_ulong(family), 1, 0)
print(count(libc.inotify_init, 64), count(terminal, 512) <= 256, vsock(40), vsock(2**32 + 40), vsock(2) > 0)
`,
  );
  // The daemon of root has an instance of its own user only.
  expect(await shell(sandbox, 'ulimit -n 4096; python3 take.py')).toBe('32 True -1 -1 True');
  expect(await shell(sandbox, 'sudo cat /proc/sys/user/max_inotify_instances')).toBe('32');
});

test('a platform that is killed takes everything with it, and another one starts in its place', {
  timeout: BUILD_MS,
}, async () => {
  needs('containers');
  const { daemon, directory } = testPlace();
  const start = async (port: number) => {
    const child = spawn(
      process.execPath,
      [MAIN, `--port=${port}`, `--daemon=${daemon}`, `--directory=${directory}`],
      {
        env: { ...process.env, E2B_API_KEY: 'the-key' },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    onTestFinished(() => void child.kill('SIGKILL'));
    for await (const line of createInterface({ input: child.stdout })) {
      const [, url] = /E2B_API_URL=(\S+)/.exec(line) ?? [];
      if (url) return { child, url };
    }
    throw new Error('it has ended');
  };
  // It is taken twice.
  const port = await freePort();
  const { child, url } = await start(port);
  const to = { apiKey: 'the-key', apiUrl: url, sandboxUrl: url, validateApiKey: false };
  const { sandboxId } = await Sandbox.create(to);
  await until('its daemon runs', () => processesOf(sandboxId).length > 0);
  child.kill('SIGKILL');
  await until('its daemon has ended', () => processesOf(sandboxId).length === 0);
  const left = [
    join(directory, String(port), 'registry.db'),
    join(findCgroupMount() ?? '', `envd-platform-${port}`),
  ];
  expect(left.map((each) => existsSync(each))).toEqual([true, true]);
  await until('its port is free', () =>
    fetch(url).then(
      () => false,
      () => true,
    ),
  );
  const other = await start(0);
  expect(left.map((each) => existsSync(each))).toEqual([false, false]);
  other.child.kill('SIGTERM');
  // Both would remove what it leaves.
  await until('the other one has ended', () => other.child.exitCode !== null);
  const next = await start(port);
  const sandbox = await Sandbox.create(to);
  expect((await sandbox.commands.run('echo here')).stdout).toBe('here\n');
  next.child.kill('SIGTERM');
  await until('the next one has ended', () => next.child.exitCode !== null);
  await until('its daemon has ended', () => processesOf(sandbox.sandboxId).length === 0);
});

test('the tour prints its key lines, exits with 0 and leaves no files', { timeout: BUILD_MS }, async () => {
  needs('containers');
  await runTour('platform.ts', [
    /← sandboxId "[a-z][a-z0-9]{19}"/,
    /← I am red 5050/,
    /← roses/,
    /← curl: \(\d+\)/,
    /← 403 [\s\S]*?is private/,
    /← a link for a browser/,
    /← 303 /,
    /← 200 <h1>green<\/h1>/,
    /← state "paused"/,
    /it has not run while the sandbox was paused/,
    /← isRunning false/,
    /← 2 sandboxes are left/,
    /Everything has ended\./,
  ]);
});
