import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { LockSettings } from '../../../src/daemon/extensions/doctor/lock-settings.ts';
import type { Verdict } from '../../../src/daemon/extensions/doctor/verdict.ts';
import type { HealthReport } from '../../../src/daemon/services/guest/health.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

const verbose = async (daemon: TestDaemon, headers: Record<string, string> = {}) => {
  const response = await fetch(`${daemon.url}/health?verbose`, { headers });
  // Its shape is checked against the document, in openapi.test.ts.
  return { status: response.status, body: (await response.json()) as HealthReport };
};

test('the verbose state tells versions, the time of the start, what is frozen, and what this guest can', async () => {
  const before = Date.now();
  await using daemon = await startDaemon();
  const { status, body } = await verbose(daemon);
  expect(status).toBe(200);
  expect(body).toMatchObject({ interface: '0.6.13', frozen: { workload: false, filesystem: false } });
  const since = Date.parse(body.since);
  expect(since).toBeGreaterThanOrEqual(before - 1000);
  expect(since).toBeLessThanOrEqual(Date.now());
  expect(Object.keys(body.abilities)).toEqual([
    ...['root', 'clock', 'freeze', 'fsfreeze', 'memoryAccounting', 'taskLimit'],
    ...['collapse', 'attributes', 'forwarding', 'records', 'recovery'],
    ...[
      'exec',
      'limits',
      'ndjson',
      'usage',
      'history',
      'pressure',
      'stop',
      'keepOutput',
      'terminal',
      'ports',
    ],
    ...['search', 'zip', 'setAttributes', 'copy'],
  ]);
  expect(body.abilities.forwarding).toMatchObject({ reason: expect.stringContaining('127.0.0.1 alone') });
  if (!daemon.cgroupRoot) return;
  expect(body.abilities.freeze).toEqual({ available: true });
  await fetch(`${daemon.url}/freeze?maxWaitMs=1000`, { method: 'POST' });
  expect((await verbose(daemon)).body.frozen).toEqual({ workload: true, filesystem: false });
  await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
  expect((await verbose(daemon)).body.frozen).toEqual({ workload: false, filesystem: false });
});

test('it needs the token, and the plain state does not', async () => {
  await using daemon = await startDaemon();
  await fetch(`${daemon.url}/init`, { method: 'POST', body: '{"accessToken":"t0ken"}' });
  expect((await verbose(daemon)).status).toBe(401);
  expect((await verbose(daemon, { 'x-access-token': 'other' })).status).toBe(401);
  expect((await verbose(daemon, { 'x-access-token': 't0ken' })).status).toBe(200);
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
});

test('localhost listeners are forwarded to the address that is given', async () => {
  await using given = await startDaemon({ args: ['--forward-address=127.0.0.2'] });
  expect((await verbose(given)).body.abilities.forwarding).toEqual({ available: true });
  await using off = await startDaemon({ args: ['--forward-address=off'] });
  expect((await verbose(off)).body.abilities.forwarding).toEqual({
    available: false,
    reason: "--forward-address is 'off'",
  });
});

interface Report extends HealthReport {
  readonly lockSettings: LockSettings;
  readonly verdict: Verdict;
}

/** What the doctor prints. Its exit code is that of its verdict. */
function doctor(...args: string[]): Report {
  const [program, ...before] = daemonCommand();
  const { status, stdout } = spawnSync(program, [...before, ...args], { encoding: 'utf8' });
  const report = JSON.parse(stdout) as Report;
  expect(status).toBe(report.verdict.readyForPause ? 0 : 3);
  return report;
}

test('envd doctor prints the same without a daemon', async () => {
  await using daemon = await startDaemon({ args: ['--no-cgroups'] });
  const { body } = await verbose(daemon);
  const printed = doctor('doctor', '--no-cgroups');
  for (const said of [printed, body]) {
    expect(said.abilities.freeze).toMatchObject({
      available: false,
      reason: expect.stringContaining('--no-cgroups'),
    });
    expect(said.abilities.taskLimit.available).toBe(false);
  }
  const { root, collapse, attributes } = body.abilities;
  expect(printed.abilities).toMatchObject({ root, collapse, attributes });
  expect([printed.version, printed.interface]).toEqual([body.version, body.interface]);
});

test('envd doctor tells of cgroups what the daemon finds when it has made them', async () => {
  await using daemon = await startDaemon();
  if (!daemon.cgroupRoot) return;
  const { body } = await verbose(daemon);
  const args = ['--host=127.0.0.1', `--cgroup-root=${daemon.cgroupRoot}`];
  const { abilities, verdict } = doctor('doctor', ...args, `--runtime-directory=${daemon.scratch}/run`);
  // Whether a service manager keeps the descriptors of the daemon is known to the daemon alone.
  const { recovery } = body.abilities;
  expect({ ...abilities, recovery }).toEqual(body.abilities);
  expect(verdict.readyForPause).toBe(abilities.clock.available);
  expect(verdict.kernelOptions).not.toContain('CONFIG_CGROUPS');
});

test('envd doctor says what lets a process keep locks of the kernel', () => {
  const setting = (name: string) =>
    existsSync(`/proc/sys/${name}`) ? Number(readFileSync(`/proc/sys/${name}`, 'utf8')) : null;
  expect(doctor('doctor', '--no-cgroups').lockSettings).toEqual({
    'user.max_user_namespaces': setting('user/max_user_namespaces'),
    'kernel.unprivileged_userns_clone': setting('kernel/unprivileged_userns_clone'),
    fuse: /\tfuse$/m.test(readFileSync('/proc/filesystems', 'utf8')) || existsSync('/dev/fuse'),
  });
});

test('the verdict of envd doctor names what a pause needs apart from the rest', () => {
  const { verdict } = doctor('doctor', '--no-cgroups');
  expect(verdict.readyForPause).toBe(false);
  expect(verdict.obstacles[0]).toBe('freeze: cgroups are off: start without --no-cgroups');
  expect(verdict.limits).toContain('taskLimit: cgroups are off: start without --no-cgroups');
});
