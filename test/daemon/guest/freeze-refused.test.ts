import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { findCgroupMount } from '../../../src/daemon/linux/cgroups/cgroup-mounts.ts';
import { cgroupMount } from '../../support/machine/cgroups.ts';
import { needs } from '../../support/machine/needs.ts';
import { type DaemonOptions, startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';

/* A freeze that stops nothing is refused, or the platform would take a snapshot of a running guest. */

const mount = findCgroupMount();

/** A daemon in a mount namespace of its own, which `script` has changed. */
const inNamespace = (script: string): DaemonOptions => ({
  cgroupRoot: null,
  command: ['unshare', '--mount', 'sh', '-c', `${script} && exec "$@"`, 'sh', ...daemonCommand()],
});

async function freeze(daemon: TestDaemon, query: string): Promise<unknown> {
  const response = await fetch(`${daemon.url}/freeze${query}`, { method: 'POST' });
  return { status: response.status, body: response.status === 204 ? null : await response.json() };
}

const QUERIES = ['', '?maxWaitMs=100', '?mode=hierarchy', '?mode=hierarchy&maxWaitMs=100'];

/** The reasons are the ends of regular expressions. */
const REASONS: [name: string, options: DaemonOptions, reason: string][] = [
  ['--no-cgroups', { args: ['--no-cgroups'] }, 'the daemon was started with --no-cgroups'],
  ['no cgroup v2', inNamespace(mount ? `umount -l '${mount}'` : 'true'), 'cgroup v2 is not mounted'],
];
if (mount) {
  REASONS.push([
    'a cgroup v2 that cannot be written',
    inNamespace(`mount -o remount,ro,bind '${mount}'`),
    // Another daemon of this machine may have the first root.
    `cgroup root is not writable: '${mount}/envd(-\\d+)?'`,
  ]);
}

test.each(REASONS)('%s: 412 with the reason, and a warning at the start', async (_name, options, reason) => {
  await using daemon = await startDaemon(options);
  expect(daemon.log).toContainEqual(
    expect.objectContaining({
      ...{ level: 40, msg: 'the workload cannot be frozen: /freeze is refused' },
      reason: expect.stringMatching(`^${reason}$`),
    }),
  );
  for (const query of QUERIES) {
    const message = expect.stringMatching(`^cannot freeze the workload: ${reason}$`);
    expect(await freeze(daemon, query)).toEqual({ status: 412, body: { code: 412, message } });
  }
  // Operations that undo a freeze succeed, as there is nothing to undo.
  expect((await fetch(`${daemon.url}/unfreeze`, { method: 'POST' })).status).toBe(204);
  expect((await fetch(`${daemon.url}/init`, { method: 'POST' })).status).toBe(204);
});

test('cgroups that became read-only: 412, and nothing counts as frozen', async () => {
  const mount = cgroupMount();
  await using daemon = await startDaemon({ command: ['unshare', '--mount', ...daemonCommand()] });
  const remount = (mode: 'ro' | 'rw') =>
    execFileSync('nsenter', [
      `--target=${daemon.pid}`,
      '--mount',
      'mount',
      '-o',
      `remount,${mode},bind`,
      mount,
    ]);
  remount('ro');
  for (const query of QUERIES) {
    const message = expect.stringMatching(/^cannot freeze the workload: EROFS/);
    expect(await freeze(daemon, query)).toEqual({ status: 412, body: { code: 412, message } });
  }
  remount('rw');
  const init = await fetch(`${daemon.url}/init`, { method: 'POST' });
  expect(init.headers.get('x-envd-freeze-audit')).toBeNull();
});

test('a freeze succeeds without processes, and when the guest has removed the cgroups', async () => {
  needs('cgroup v2');
  await using daemon = await startDaemon();
  expect(await freeze(daemon, '')).toEqual({ status: 204, body: null });
  expect((await fetch(`${daemon.url}/unfreeze`, { method: 'POST' })).status).toBe(204);
  expect(await freeze(daemon, '?maxWaitMs=100')).toMatchObject({
    status: 200,
    body: { requested: 2, frozen: 2 },
  });
  expect((await fetch(`${daemon.url}/unfreeze`, { method: 'POST' })).status).toBe(204);
  execFileSync('rmdir', [`${daemon.cgroupRoot}/user`, `${daemon.cgroupRoot}/ptys`]);
  expect(await freeze(daemon, '?maxWaitMs=100')).toMatchObject({
    status: 200,
    body: { requested: 0, failed: 0 },
  });
});
