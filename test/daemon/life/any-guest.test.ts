import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { EventType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { byTag, connectTo, transcribe } from '../../support/clients/clients.ts';
import { BareRoot, type BareRootOptions } from '../../support/machine/bare-root.ts';
import { cgroupMount } from '../../support/machine/cgroups.ts';
import { mountFuse } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { useImage } from '../../support/programs/image.ts';
import { startSupervised } from '../../support/programs/supervised.ts';
import { follow, input, startDetached } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

const SHELL = '/bin/sh';

const image = useImage();

async function bareRoot(options: Omit<BareRootOptions, 'image'> = {}): Promise<BareRoot> {
  needs('mounts', '/bin/busybox');
  if (options.musl) needs('musl-gcc');
  const root = await BareRoot.create({ ...options, image: image() });
  onTestFinished(() => root[Symbol.asyncDispose]());
  return root;
}

/** The paths of what a process executes; those below the image as its root has them. */
const executed = (pid: number) => {
  const mappings = readFileSync(`/proc/${pid}/maps`, 'utf8').matchAll(/ r-xp .* (\/.*)$/gm);
  return Array.from(mappings, ([, path = '']) => path.replace(/^.*(?=\/opt\/envd\/)/, ''));
};

describe.each([
  { guest: 'busybox and a read-only root', readOnly: true },
  { guest: 'busybox and musl', musl: true },
])('a guest with $guest', ({ readOnly = false, musl = false }) => {
  const start = async () => {
    const root = await bareRoot({ readOnly, musl });
    await root.mountProc();
    const daemon = await startDaemon({ command: root.command('/bin/envd') });
    onTestFinished(() => daemon[Symbol.asyncDispose]());
    return daemon;
  };

  test('runs commands, which inherit nothing of the image', async () => {
    const daemon = await start();
    const foreign = executed(daemon.pid).filter((path) => !path.startsWith('/opt/envd/lib/'));
    expect(foreign).toEqual([]);
    const { process: processes } = connectTo(daemon.url);
    const print = musl ? { cmd: '/bin/musl-env' } : { cmd: '/bin/busybox', args: ['env'] };
    const run = await transcribe(processes.start({ process: print }));
    expect([String(run.stderr), run.end?.exitCode]).toEqual(['', 0]);
    expect(String(run.stdout)).toContain('PATH=');
    expect(String(run.stdout)).not.toMatch(/^LD_|opt\/envd|UV_THREADPOOL|NODE/m);
    const shell = { cmd: SHELL, args: ['-c', 'cat /proc/self/maps; exit 7'] };
    const own = await transcribe(processes.start({ process: shell }));
    expect(own.end).toMatchObject({ exited: true, exitCode: 7 });
    expect(String(own.stdout)).toContain('/bin/busybox');
    expect(String(own.stdout)).not.toContain('/opt/envd');
  });

  test('has terminals, uploads and watches', async () => {
    const daemon = await start();
    const { process: processes, filesystem } = connectTo(daemon.url);
    const process = { cmd: SHELL, args: ['-c', 'stty size'] };
    const run = await transcribe(processes.start({ process, pty: { size: { cols: 91, rows: 17 } } }));
    expect([String(run.pty), run.end?.exitCode]).toEqual(['17 91\r\n', 0]);

    const cancel = new AbortController();
    const events = filesystem
      .watchDir({ path: daemon.scratch }, { signal: cancel.signal })
      [Symbol.asyncIterator]();
    expect((await events.next()).value?.event.case).toBe('start');
    const path = join(daemon.scratch, 'poem.txt');
    const headers = { 'content-type': 'application/octet-stream' };
    const upload = await fetch(`${daemon.url}/files?path=${path}`, {
      method: 'POST',
      headers,
      body: 'roses',
    });
    expect(upload.status).toBe(200);
    expect((await events.next()).value?.event.value).toMatchObject({
      name: 'poem.txt',
      type: EventType.CREATE,
    });
    cancel.abort();
    expect(readFileSync(path, 'utf8')).toBe('roses');
    expect(await (await fetch(`${daemon.url}/files?path=${path}`)).text()).toBe('roses');
  });

  test('is frozen and collapsed', async () => {
    cgroupMount();
    const daemon = await start();
    const call = (route: string) => fetch(`${daemon.url}${route}`, { method: 'POST' });
    const clients = connectTo(daemon.url);
    await startDetached(clients, { process: { cmd: '/bin/cat' }, tag: 'cat' });
    expect(await (await call('/freeze?maxWaitMs=5000')).json()).toMatchObject({ requested: 2, frozen: 2 });
    const collapsed = await call('/collapse');
    expect(await collapsed.json()).toHaveProperty('regions');
    expect((await call('/unfreeze')).status).toBe(204);
    await clients.process.closeStdin({ process: byTag('cat') });
  });

  test('keeps its processes over an upgrade and a crash', async () => {
    const root = await bareRoot({ readOnly, musl });
    await root.mountProc();
    await using supervised = await startSupervised({ command: root.command('/bin/envd') });
    const clients = connectTo(supervised.daemon.url, 'binary');
    const script = 'echo begun; while read x; do echo "<$x>"; done; exit 9';
    const process = { cmd: SHELL, args: ['-c', script] };
    const echo = follow(clients, await startDetached(clients, { process, tag: 'echo' }));
    await until('it has begun', () => echo.following.parts.stdout[0]);
    for (const how of ['upgrade', 'crash', 'upgrade'] as const) {
      await supervised[how]();
      expect(executed(supervised.main())).toContain('/opt/envd/lib/envd');
      await clients.process.sendInput({ process: byTag('echo'), input: input('stdin', `${how}\n`) });
    }
    await clients.process.closeStdin({ process: byTag('echo') });
    expect(await echo.end).toMatchObject({ exited: true, exitCode: 9 });
    const text = Buffer.concat(echo.following.parts.stdout).toString();
    expect(text).toBe('begun\n<upgrade>\n<crash>\n<upgrade>\n');
  });
});

test('it listens before /proc is mounted, without cgroups, and then runs commands', async () => {
  const root = await bareRoot();
  const [program, ...args] = root.command('/bin/envd');
  const { status, stderr } = spawnSync(program, [...args, '--port=0', '--host=127.0.0.1'], {
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([1, expect.stringContaining("'/proc/self/mountinfo'")]);
  await using daemon = await startDaemon({
    command: [program, ...args],
    args: ['--no-cgroups'],
    cgroupRoot: null,
  });
  const { process: processes } = connectTo(daemon.url);
  const run = () => transcribe(processes.start({ process: { cmd: '/bin/busybox', args: ['true'] } }));
  await expect(run()).rejects.toThrow('oom_score_adj: ENOENT');
  await root.mountProc();
  expect((await run()).end).toMatchObject({ exited: true, exitCode: 0 });
});

test('started by a relative path, it executes itself for an upgrade', async () => {
  const root = await bareRoot();
  await root.mountProc();
  const command = root.command(SHELL, '-c', 'cd /opt/envd/lib && exec ../bin/envd "$@"', 'sh');
  await using daemon = await startDaemon({ command });
  expect((await fetch(`${daemon.url}/upgrade`, { method: 'POST' })).status).toBe(202);
  await until('the next program listens', () => daemon.log.filter(({ msg }) => msg === 'ready').length > 1);
  expect(executed(daemon.pid)).toContain('/opt/envd/lib/envd');
  const run = await transcribe(
    connectTo(daemon.url).process.start({ process: { cmd: '/bin/busybox', args: ['true'] } }),
  );
  expect(run.end?.exitCode).toBe(0);
});

test('its helper programs watch a network mount and search files', async () => {
  const [mounted] = mountFuse();
  const root = await bareRoot({ mounted });
  await root.mountProc();
  await using daemon = await startDaemon({ command: root.command('/bin/envd') });
  const cancel = new AbortController();
  const { filesystem } = connectTo(daemon.url);
  const events = filesystem
    .watchDir({ path: mounted, allowNetworkMounts: true }, { signal: cancel.signal })
    [Symbol.asyncIterator]();
  expect((await events.next()).value?.event.case).toBe('start');
  cancel.abort();
  const paths: string[] = [];
  for await (const { event } of filesystem.find({ path: '/bin', name: ['busy*'] }))
    if (event.case === 'found') paths.push(event.value.path);
  expect(paths).toEqual(['/bin/busybox']);
});
