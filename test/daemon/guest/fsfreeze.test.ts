import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import { describe, expect, onTestFinished, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { loopMount } from '../../support/machine/cgroups.ts';
import { isWritable } from '../../support/machine/frozen.ts';
import { blockableTmpfs } from '../../support/machine/mounts.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { daemonCommand } from '../../support/programs/programs.ts';
import { freePort } from '../../support/servers/free-port.ts';

const FROZEN = 'cannot change files: the file system is frozen, try again after the thaw';

/** A daemon that freezes a file system of the test, not that of the machine. */
async function setUp() {
  const filesystem = loopMount();
  const { path } = filesystem;
  writeFileSync(`${path}/old`, 'content');
  const daemon = await startDaemon({ args: [`--fsfreeze-path=${path}`] });
  onTestFinished(async () => {
    filesystem.thaw();
    await daemon[Symbol.asyncDispose]();
    filesystem[Symbol.dispose]();
  });
  return { daemon, path, filesystem };
}

const post = (daemon: TestDaemon, path: string, body = '{}') =>
  fetch(daemon.url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body });

const upload = (daemon: TestDaemon, path: string, body = 'new') =>
  fetch(`${daemon.url}/files?path=${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/octet-stream' },
    body,
  });

const operations = (daemon: TestDaemon) =>
  daemon.log.flatMap((line) => (line.msg === 'operation' ? [line.operation] : []));

test('freezing and thawing succeed, also when repeated', async () => {
  const { daemon, path } = await setUp();
  for (const operation of ['/fsthaw', '/fsfreeze', '/fsfreeze', '/fsthaw', '/fsthaw']) {
    expect((await post(daemon, operation)).status, operation).toBe(204);
  }
  expect((await upload(daemon, `${path}/new`)).status).toBe(200);
});

describe('while the file system is frozen', () => {
  test('only operations that change files are refused', async () => {
    const { daemon, path } = await setUp();
    const { process: rpc, filesystem } = connectTo(daemon.url);
    await post(daemon, '/fsfreeze');

    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
    expect((await rpc.list({})).processes).toEqual([]);
    expect(await (await fetch(`${daemon.url}/files?path=${path}/old`)).text()).toBe('content');
    expect((await filesystem.stat({ path: `${path}/old` })).entry?.size).toBe(7n);
    const run = await transcribe(rpc.start({ process: { cmd: 'echo', args: ['hi'], cwd: path } }));
    expect([String(run.stdout), run.end?.exitCode]).toEqual(['hi\n', 0]);
    expect((await fetch(`${daemon.url}/metrics`)).status).toBe(200);
    expect((await post(daemon, '/freeze?maxWaitMs=10000')).status).toBe(200);
    expect((await post(daemon, '/unfreeze')).status).toBe(204);

    for (const target of [`${path}/new`, '/tmp/elsewhere']) {
      const refused = await upload(daemon, target);
      expect([refused.status, await refused.json()]).toEqual([503, { code: 503, message: FROZEN }]);
    }
    const compose = { source_paths: [`${path}/old`], destination: `${path}/new` };
    expect((await post(daemon, '/files/compose', JSON.stringify(compose))).status).toBe(503);
    const changes = [
      () => filesystem.makeDir({ path: `${path}/dir` }),
      () => filesystem.move({ source: `${path}/old`, destination: `${path}/new` }),
      () => filesystem.remove({ path: `${path}/old` }),
    ];
    for (const change of changes) {
      const error = ConnectError.from(await change().catch((reason: unknown) => reason));
      expect([error.code, error.rawMessage]).toEqual([Code.Unavailable, FROZEN]);
    }

    expect((await post(daemon, '/fsthaw')).status).toBe(204);
    await filesystem.remove({ path: `${path}/old` });
    expect(existsSync(`${path}/old`)).toBe(false);
  });

  test('a process that writes to it blocks until the thaw, and others continue', async () => {
    const { daemon, path } = await setUp();
    const { process: rpc } = connectTo(daemon.url);
    await post(daemon, '/fsfreeze');
    let pid = 0;
    const writing = transcribe(
      rpc.start({ process: { cmd: 'sh', args: ['-c', `echo x > ${path}/new`] } }),
      (event, { pid: started }) => {
        if (event.case === 'start') pid = started;
      },
    );
    await expect.poll(() => pid).toBeGreaterThan(0);
    await expect.poll(() => readFileSync(`/proc/${pid}/status`, 'utf8')).toMatch(/^State:\tD/m);
    expect(String((await transcribe(rpc.start({ process: { cmd: 'echo' } }))).stdout)).toBe('\n');
    await post(daemon, '/fsthaw');
    expect((await writing).end?.exitCode).toBe(0);
    expect(readFileSync(`${path}/new`, 'utf8')).toBe('x\n');
  });

  test('uploads in progress wait for the thaw, more than there are pool threads, and are stored whole', async () => {
    const { daemon, path } = await setUp();
    const piece = Buffer.alloc(20_000, 'x');
    // More than the pool has threads.
    const uploads = Array.from({ length: 8 }, (_, i) => {
      const call = request(`${daemon.url}/files?path=${path}/new-${i}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/octet-stream',
          'content-length': 2 * piece.length,
          expect: '100-continue',
        },
      });
      call.flushHeaders();
      return { call, begun: once(call, 'continue'), answered: once(call, 'response') };
    });
    const [abandoned, ...kept] = uploads;
    for (const { begun } of uploads) await begun;
    for (const { call } of uploads) call.write(piece);
    expect((await post(daemon, '/fsfreeze')).status).toBe(204);
    abandoned?.answered.catch(() => {});
    abandoned?.call.destroy();
    for (const { call } of kept) call.end(piece);
    expect(await (await fetch(`${daemon.url}/files?path=${path}/old`)).text()).toBe('content');
    expect((await fetch(`${daemon.url}/metrics`)).status).toBe(200);
    expect(existsSync(`${path}/new-1`)).toBe(false);
    expect((await post(daemon, '/fsthaw')).status).toBe(204);
    for (const { answered } of kept) expect((await answered)[0].statusCode).toBe(200);
    expect(readFileSync(`${path}/new-1`).equals(Buffer.concat([piece, piece]))).toBe(true);
    expect(existsSync(`${path}/new-0`)).toBe(false);
    expect((await post(daemon, '/fsfreeze')).status).toBe(204);
  });

  test('nothing is logged before the thaw; the lines follow then', async () => {
    const { daemon } = await setUp();
    await post(daemon, '/fsfreeze');
    await fetch(`${daemon.url}/envs`);
    // No event tells that a line was not logged.
    await sleep(100);
    expect(operations(daemon)).toEqual([]);
    await post(daemon, '/fsthaw');
    await expect.poll(() => operations(daemon)).toEqual(['GET /envs', 'POST /fsthaw']);
  });
});

describe('the file system is thawed', () => {
  test('by /init, before the steps that write', async () => {
    const { daemon, path } = await setUp();
    await post(daemon, '/fsfreeze');
    const response = await post(daemon, '/init', JSON.stringify({ envVars: { A: '1' } }));
    expect(response.status).toBe(204);
    expect(response.headers.get('x-envd-freeze-audit')).toBeNull();
    expect((await upload(daemon, `${path}/new`)).status).toBe(200);
  });

  test('when the daemon stops', async () => {
    const { daemon, path } = await setUp();
    await post(daemon, '/fsfreeze');
    expect(await daemon.stop()).toBe(0);
    expect(await isWritable(path)).toBe(true);
  });

  test('by the next daemon, when one was killed', async () => {
    const { daemon, path } = await setUp();
    await post(daemon, '/fsfreeze');
    await daemon.stop('SIGKILL');
    const port = await freePort();
    const args = ['--host=127.0.0.1', `--port=${port}`, '--no-cgroups', `--fsfreeze-path=${path}`];
    // It logs nothing before the thaw, so its health shows that it has started.
    const [program, ...before] = daemonCommand();
    const next = spawn(program, [...before, ...args, `--runtime-directory=${daemon.scratch}/run`], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void next.kill());
    let log = '';
    next.stdout.on('data', (text) => {
      log += text;
    });
    const url = `http://127.0.0.1:${port}`;
    const health = async () => (await fetch(`${url}/health`).catch(() => null))?.status;
    await expect.poll(health).toBe(204);
    expect((await upload({ ...daemon, url }, `${path}/new`)).status).toBe(503);
    expect(log).toBe('');
    expect((await post({ ...daemon, url }, '/init')).status).toBe(204);
    expect((await upload({ ...daemon, url }, `${path}/new`)).status).toBe(200);
    await expect.poll(() => log).toContain('ready');
    next.kill();
    expect(await once(next, 'exit')).toEqual([0, null]);
  });
});

describe('concurrent pause operations', () => {
  test('are refused while another one of freeze, collapse, fsfreeze and fsthaw is in progress', async () => {
    const { daemon, path } = await setUp();
    // Many, because those that come one after the other are not refused.
    const calls = Array(5).fill(['/collapse', '/fsfreeze', '/freeze', '/fsthaw']).flat();
    const answers = await Promise.all(calls.map((operation) => post(daemon, operation)));
    const refused = answers.filter(({ status }) => status === 503);
    expect(refused.length).toBeGreaterThan(0);
    for (const answer of refused) {
      expect(await answer.json()).toMatchObject({
        message: expect.stringMatching(/^cannot .* is under way$/),
      });
    }
    await post(daemon, '/init');
    expect((await upload(daemon, `${path}/new`)).status).toBe(200);
  });
});

test('fsfreeze is refused when the runtime directory is on that file system', async () => {
  const { daemon, path } = await setUp();
  await using other = await startDaemon({
    args: [`--fsfreeze-path=${path}`, `--runtime-directory=${path}/run`],
  });
  const response = await post(other, '/fsfreeze');
  expect([response.status, await response.json()]).toEqual([
    412,
    {
      code: 412,
      message: `cannot freeze the file system of '${path}': the daemon writes to '${path}/run', which must be on another file system`,
    },
  ]);
  expect((await upload(daemon, `${path}/new`)).status).toBe(200);
});

test('a freeze that cannot be recorded is refused, and leaves nothing frozen, shut or held', async () => {
  const filesystem = loopMount();
  onTestFinished(() => filesystem[Symbol.dispose]());
  const { directory, block } = blockableTmpfs('full');
  const args = [`--fsfreeze-path=${filesystem.path}`, `--runtime-directory=${directory}`];
  await using daemon = await startDaemon({ args });
  block();
  const refused = await post(daemon, '/fsfreeze');
  expect([refused.status, await refused.json()]).toEqual([
    507,
    { code: 507, message: expect.stringMatching(/^cannot record the freeze in .*: ENOSPC: /) },
  ]);
  expect((await upload(daemon, `${filesystem.path}/new`)).status).toBe(200);
  await expect.poll(() => operations(daemon)).toEqual(['POST /fsfreeze', 'POST /files']);
});
