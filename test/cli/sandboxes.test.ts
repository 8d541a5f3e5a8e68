import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SandboxChanges } from '../../src/cli/commands/sandboxes/sandbox-changes.ts';
import type { SandboxLine } from '../../src/cli/commands/sandboxes/sandbox-lines.ts';
import { scratch } from '../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { envctl, envctlUntil } from '../support/programs/envctl.ts';
import { API_KEY, startGateway } from '../support/programs/gateway.ts';
import { startMachines } from '../support/programs/machines.ts';
import { owned } from '../support/programs/owned.ts';
import { freePort } from '../support/servers/free-port.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  const init = { method: 'POST', body: JSON.stringify({ accessToken: 'secret' }) };
  await fetch(`${daemon.url}/init`, init);
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const gatewayEnv = (url: string) => ({ ENVCTL_GATEWAY: url, ENVCTL_API_KEY: API_KEY });

describe('sandboxes add', () => {
  test('registers a sandbox, which is then reached with its token', async () => {
    const gateway = await owned(startGateway());
    const env = gatewayEnv(gateway.url);
    const file = join(scratch(), 'token');
    writeFileSync(file, 'secret\n');
    const flags = ['--timeout', '10m', '--on-expiry', 'remove', '--owner', 'ada', '--metadata', 'a=b=c'];
    const where = ['box', '127.0.0.1', '--port', String(daemon.port), '--token-file', file];
    const { code, stdout } = await envctl('', ['sandboxes', 'add', ...where, ...flags, '--json'], { env });
    expect(code).toBe(0);
    const address = `127.0.0.1:${daemon.port}`;
    const told = { id: 'box', state: 'running', address, metadata: { a: 'b=c' } };
    expect(JSON.parse(stdout)).toMatchObject({ ...told, secondsLeft: expect.closeTo(600, -2) });
    expect(stdout).not.toContain('secret');
    const { body } = await gateway.call('GET /sandboxes/box');
    expect(body).toMatchObject({ envdAccessToken: 'secret', onExpiry: 'remove', owner: 'ada' });
    const run = ['run', '--sandbox', 'box', '--token-file', file, 'echo', 'here'];
    expect(await envctl('', run, { env })).toMatchObject({ code: 0, stdout: 'here\n' });
  });

  test('the token of a variable is not given away', async () => {
    const gateway = await owned(startGateway());
    const env = { ...gatewayEnv(gateway.url), ENVCTL_TOKEN: 'of-another', ENVCTL_SANDBOX: 'other' };
    expect(await envctl('', ['sandboxes', 'add', 'box', '127.0.0.1'], { env })).toMatchObject({
      ...{ code: 0, stdout: '', stderr: '' },
    });
    expect((await gateway.call('GET /sandboxes/box')).body).not.toHaveProperty('envdAccessToken');
  });

  test('what the gateway refuses is told', async () => {
    const gateway = await owned(startGateway());
    const env = gatewayEnv(gateway.url);
    const add = (...args: string[]) => envctl('', ['sandboxes', 'add', ...args], { env });
    expect((await add('box', '10.0.0.1')).code).toBe(125);
    expect((await add('a/b', '127.0.0.1')).stderr).toContain('sandboxID');
    expect((await add('box', 'http://127.0.0.1')).code).toBe(120);
    expect((await add('box', '127.0.0.1', '--on-expiry', 'sleep')).code).toBe(120);
    expect((await add('box', '127.0.0.1', '--api-key', 'wrong')).code).toBe(122);
  });
});

describe('sandboxes watch', () => {
  test('tells what appears, gets other time, is paused and resumed, and ends', async () => {
    await using machines = await startMachines();
    const hook = `http://127.0.0.1:${machines.port}/`;
    const hooks = ['hook', 'resume-hook', 'kill-hook'].map((name) => `--${name}=${hook}`);
    const gateway = await owned(startGateway({ args: hooks }));
    await gateway.register('first', daemon.port, { timeout: 600, envdAccessToken: 'secret' });
    const args = ['sandboxes', 'watch', '--interval', '200ms', '--json', '--count', '6'];
    const running = await envctlUntil('', args, /appear.*first/, { env: gatewayEnv(gateway.url) });
    const seen = () =>
      running
        .stdout()
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
    const steps = [
      ['POST /sandboxes/first/timeout', { timeout: 900 }, 'time', 900],
      ['POST /sandboxes/first/pause', undefined, 'pause', null],
      ['POST /sandboxes/first/resume', { timeout: 1200 }, 'resume', 1200],
    ] as const;
    for (const [operation, body, type, secondsLeft] of steps) {
      await gateway.call(operation, body);
      await expect.poll(() => seen().at(-1)).toMatchObject({ id: 'first', type });
      if (secondsLeft !== null) expect(seen().at(-1).secondsLeft).toBeCloseTo(secondsLeft, -2);
    }
    await gateway.register('second', daemon.port, { timeout: 600 });
    await expect.poll(() => seen().at(-1)).toMatchObject({ id: 'second', type: 'appear' });
    await gateway.call('DELETE /sandboxes/first');
    expect((await running.result).code).toBe(0);
    expect(seen().at(-1)).toMatchObject({ id: 'first', type: 'end' });
  });

  test('goes on when the gateway comes back', async () => {
    const directory = scratch();
    // It is taken twice.
    const port = await freePort();
    const first = await owned(startGateway({ directory, port }));
    await first.register('box', daemon.port, { timeout: 600 });
    const args = ['sandboxes', 'watch', '--interval', '200ms'];
    const running = await envctlUntil('', args, /\n/, { env: gatewayEnv(first.url) });
    expect(running.stdout()).toMatch(
      new RegExp(`^appear {2}box {2}running {2}(9:\\d\\d|10:00) left {2}127.0.0.1:${daemon.port}\\n$`),
    );
    await first.kill();
    await expect.poll(() => running.stderr()).toMatch(/^warning: cannot reach .*\n$/);
    const second = await owned(startGateway({ directory, port }));
    await second.register('later', daemon.port, { timeout: 600 });
    await expect.poll(() => running.stdout()).toMatch(/\nappear {2}later/);
    expect(running.stderr()).toMatch(/\[the gateway answers again\]\n$/);
  });

  test('a wrong key and an interval that is too short end it', async () => {
    const gateway = await owned(startGateway());
    const env = { ...gatewayEnv(gateway.url), ENVCTL_API_KEY: 'wrong' };
    expect((await envctl('', ['sandboxes', 'watch'], { env })).code).toBe(122);
    expect((await envctl('', ['sandboxes', 'watch', '--interval', '1ms'], { env })).code).toBe(120);
    const nobody = gatewayEnv('http://127.0.0.1:1');
    expect((await envctl('', ['sandboxes', 'watch'], { env: nobody })).code).toBe(121);
  });

  test('another machine under the same id is an end and an appearance', () => {
    const line = (startedAt: string): SandboxLine => ({
      ...{ id: 'box', state: 'running', phase: 'running', address: '-', metadata: {} },
      ...{ startedAt, endAt: '2030-01-01T00:00:00Z', secondsLeft: 1 },
    });
    const changes = new SandboxChanges();
    const types = (...lines: readonly SandboxLine[]) => changes.take(lines).map(({ type }) => type);
    const [first, second] = [line('2029-01-01T00:00:00Z'), line('2029-01-02T00:00:00Z')];
    expect(types(first)).toEqual(['appear']);
    expect(types(first)).toEqual([]);
    expect(types(second)).toEqual(['end', 'appear']);
    expect(types({ ...second, phase: 'expiring', endAt: '2031-01-01T00:00:00Z' })).toEqual([]);
    expect(types({ ...second, state: 'paused', phase: 'paused' })).toEqual(['pause']);
    expect(types({ ...first, phase: 'resuming' })).toEqual([]);
    expect(types(first)).toEqual(['resume']);
    expect(types()).toEqual(['end']);
  });
});
