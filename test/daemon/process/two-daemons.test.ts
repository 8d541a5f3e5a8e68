import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { Cgroup } from '../../../src/daemon/linux/cgroups/cgroup2.ts';
import { connectTo } from '../../support/clients/clients.ts';
import { testCgroup } from '../../support/machine/cgroups.ts';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { type DaemonOptions, startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';
import { until } from '../../support/until.ts';

/* Two daemons on one machine must not share cgroups: each would freeze, and end, the processes of the other. */

/** Daemons that see this cgroup as the whole hierarchy, and so have the same default root. */
function below(top: Cgroup): DaemonOptions {
  const mount = join(scratch(), 'cgroup');
  mkdirSync(mount);
  const real = top.path.slice(0, top.path.lastIndexOf('/'));
  const script = `mount --bind '${top.path}' '${mount}' && umount -l '${real}' && exec "$@"`;
  return {
    cgroupRoot: null,
    command: ['unshare', '--mount', 'sh', '-c', script, 'sh', ...daemonCommand()],
  };
}

async function startSleeper(daemon: TestDaemon): Promise<number> {
  const stream = connectTo(daemon.url).process.start({ process: { cmd: 'sleep', args: ['1000'] } });
  const { value } = await stream[Symbol.asyncIterator]().next();
  const event = value?.event?.event;
  if (event?.case !== 'start') throw new Error('no start');
  return event.value.pid;
}

const cgroupOf = (pid: number) => /^0::(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, 'utf8'))?.[1] ?? '';
const post = (daemon: TestDaemon, path: string) => fetch(daemon.url + path, { method: 'POST' });
const readies = (daemon: TestDaemon) => daemon.log.filter(({ msg }) => msg === 'ready').length;

/** Starts a daemon with this root, which must fail; returns what it says. */
function failedStart(root: string): string {
  const args = ['--host=127.0.0.1', '--port=0', `--cgroup-root=${root}`, '--metadata-service=off'];
  const [program, ...before] = daemonCommand();
  const { status, stdout, stderr } = spawnSync(
    program,
    [...before, ...args, `--runtime-directory=${scratch()}`],
    { encoding: 'utf8', timeout: 280_000 },
  );
  expect(status).toBe(2);
  return stdout + stderr;
}

test('with the default root, the second one has a root of its own, and says so', async () => {
  using top = testCgroup();
  await using first = await startDaemon(below(top));
  await using second = await startDaemon(below(top));
  const [one, two] = [await startSleeper(first), await startSleeper(second)];
  expect(cgroupOf(one)).toMatch(/\/envd\/user\//);
  expect(cgroupOf(two)).toMatch(/\/envd-2\/user\//);
  expect(second.log).toContainEqual(
    expect.objectContaining({
      msg: 'another daemon uses the default cgroup root: this daemon uses one of its own',
    }),
  );
  expect((await post(first, '/freeze?maxWaitMs=5000')).status).toBe(200);
  const three = await startSleeper(second);
  expect(await second.stop()).toBe(0);
  expect((await post(first, '/unfreeze')).status).toBe(204);
  expect(runs(three)).toBe(false);
  expect(runs(one)).toBe(true);
});

test('a configured root that another daemon uses is refused, also after its upgrade, until it has ended', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  const root = String(daemon.cgroupRoot);
  const text = `cgroup root '${root}' is used by another daemon: set --cgroup-root to another cgroup`;
  expect(failedStart(root)).toContain(text);
  const before = readies(daemon);
  expect((await post(daemon, '/upgrade')).status).toBe(202);
  await until('the new program listens', () => readies(daemon) > before);
  expect(failedStart(root)).toContain(text);
  const pid = await startSleeper(daemon);
  expect(cgroupOf(pid)).toContain('/user/');
  // What it has started does not hold the lock.
  await daemon.stop('SIGKILL');
  await using next = await startDaemon({ args: [`--cgroup-root=${root}`] });
  expect((await post(next, '/freeze?maxWaitMs=5000')).status).toBe(200);
  onTestFinished(() => void new Cgroup(`${root}/user`).kill());
});
