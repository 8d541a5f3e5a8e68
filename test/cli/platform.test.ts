import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { needs } from '../support/machine/needs.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl } from '../support/programs/envctl.ts';
import { API_KEY, startGateway } from '../support/programs/gateway.ts';
import { startMachines } from '../support/programs/machines.ts';
import { owned } from '../support/programs/owned.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());
const run = (...args: string[]) => envctl(daemon.url, args);

test('metrics once, in JSON and as the metrics of the daemon', async () => {
  expect((await run('metrics')).stdout).toMatch(
    /^cpu [\d.]+ % of \d+ {3}memory .* of .* {3}disk .* of .*\n$/,
  );
  expect(JSON.parse((await run('metrics', '--json')).stdout)).toMatchObject({
    mem_total: expect.any(Number),
  });
  expect((await run('metrics', '--prometheus')).stdout).toMatch(/^# HELP /m);
});

test('ports', async () => {
  const { stdout } = await run('ports', '--json');
  // Of this machine, which the daemon shares.
  const port = Number(new URL(daemon.url).port);
  const listener = { port, address: '127.0.0.1', forwarded: false };
  expect(JSON.parse(stdout)).toMatchObject({
    address: null,
    ports: expect.arrayContaining([expect.objectContaining(listener)]),
  });
  expect(await run('ports')).toMatchObject({ code: 0, stdout: expect.stringContaining(String(port)) });
});

test('init keeps the token of the call, sets variables and tells the interface', async () => {
  const guest = await owned(startDaemon());
  const file = join(scratch(), 'token');
  writeFileSync(file, 'first\n');
  const first = await envctl(guest.url, [
    'init',
    '--json',
    '--new-token-file',
    file,
    '--default-user',
    'root',
  ]);
  expect(JSON.parse(first.stdout)).toMatchObject({ interface: '0.6.13' });
  expect((await envctl(guest.url, ['ps'])).code).toBe(122);
  const env = { ENVCTL_TOKEN: 'first' };
  expect((await envctl(guest.url, ['init', '-e', 'A=b=c', '-e', 'D=e', '--now'], { env })).code).toBe(0);
  expect(await envctl(guest.url, ['run', 'sh', '-c', 'echo $A $D'], { env })).toMatchObject({
    stdout: 'b=c e\n',
  });
  expect((await envctl(guest.url, ['ps'])).code).toBe(122);
  expect((await envctl(guest.url, ['init', '--token', 'wrong'])).code).toBe(122);
});

test('freeze, thaw, collapse and pause-test', async () => {
  needs('cgroup v2');
  const job = await run('run', '-d', 'sleep', '100');
  const frozen = await run('freeze', '--json', '--max-wait-ms', '3000');
  expect(JSON.parse(frozen.stdout)).toMatchObject({ mode: 'legacy', notFrozen: 0 });
  expect(JSON.parse((await run('health', '--json')).stdout).frozen).toEqual({
    workload: true,
    filesystem: false,
  });
  expect((await run('doctor')).stdout).toMatch(/warning +frozen +yes/);
  expect((await run('thaw')).code).toBe(0);
  expect(JSON.parse((await run('health', '--json')).stdout).frozen.workload).toBe(false);
  expect(JSON.parse((await run('collapse', '--json')).stdout)).toHaveProperty('elapsedMs');
  const { stdout } = await run('pause-test', '--json');
  const { milliseconds } = JSON.parse(stdout);
  expect(Object.values(milliseconds)).toEqual([expect.any(Number), expect.any(Number), expect.any(Number)]);
  expect((await run('pause-test')).stdout).toMatch(
    /^freeze +[\d.]+ ms\ncollapse +[\d.]+ ms\nthaw +[\d.]+ ms\n$/,
  );
  expect(JSON.parse((await run('health', '--json')).stdout).frozen.workload).toBe(false);
  await run('kill', '-s', 'KILL', job.stdout.trim());
});

test('upgrade waits for the new daemon, and processes go on', async () => {
  const guest = await owned(startDaemon());
  const job = await envctl(guest.url, ['run', '-d', '--tag', 'kept', 'sleep', '100']);
  const result = await envctl(guest.url, ['upgrade', '--json']);
  expect(result).toMatchObject({ code: 0 });
  const { before, after } = JSON.parse(result.stdout);
  expect(after).toBe(before);
  expect((await envctl(guest.url, ['ps'])).stdout).toMatch(
    new RegExp(`^ *${job.stdout.trim()} .* kept `, 'm'),
  );
  await envctl(guest.url, ['kill', '-s', 'KILL', 'kept']);
});

test('sandboxes of a gateway: list, extend, pause, resume and kill', async () => {
  await using machines = await startMachines();
  const hook = `http://127.0.0.1:${machines.port}/`;
  const hooks = ['hook', 'resume-hook', 'kill-hook'].map((name) => `--${name}=${hook}`);
  const gateway = await owned(startGateway({ args: hooks }));
  await gateway.register('box-one', daemon.port, { timeout: 600, metadata: { owner: 'ada' } });
  const env = { ENVCTL_GATEWAY: gateway.url, ENVCTL_API_KEY: API_KEY };
  const call = (...args: string[]) => envctl('', ['sandboxes', ...args], { env });
  const list = async () => JSON.parse((await call('list', '--json')).stdout).sandboxes;
  expect(await list()).toEqual([
    expect.objectContaining({
      id: 'box-one',
      state: 'running',
      secondsLeft: expect.any(Number),
      metadata: { owner: 'ada' },
    }),
  ]);
  expect((await call('list')).stdout).toMatch(/^ID .*\nbox-one +running +(9:\d\d|10:00) /);
  expect((await call('extend', 'box-one', '30m')).code).toBe(0);
  expect((await list())[0].secondsLeft).toBeGreaterThan(1700);
  expect((await call('extend', 'box-one', '2h')).code).toBe(120);
  expect((await call('extend', '--exactly', 'box-one', '2m')).code).toBe(0);
  expect((await list())[0].secondsLeft).toBeLessThan(121);
  expect(await call('pause', 'box-one')).toMatchObject({ code: 0 });
  expect((await list())[0]).toMatchObject({ state: 'paused' });
  expect(await call('resume', 'box-one', '--timeout', '10m')).toMatchObject({ code: 0 });
  expect(await call('kill', 'box-one')).toMatchObject({ code: 0 });
  expect(await list()).toEqual([]);
  expect(await call('kill', 'box-one')).toMatchObject({ code: 123 });
  expect(await envctl('', ['sandboxes', 'list'], { env: { ...env, ENVCTL_API_KEY: 'wrong' } })).toMatchObject(
    { code: 122 },
  );
});
