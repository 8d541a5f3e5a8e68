import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { CommandHook } from '../../../src/gateway/hooks/command-hook.ts';
import type { HookRequest } from '../../../src/gateway/hooks/hook.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { hookCalls, record } from '../../support/servers/hook.ts';
import { until } from '../../support/until.ts';

const request = (expiryID: string): HookRequest => ({
  ...{ event: 'expire', expiryID, sandboxID: 'box', outcome: 'pause', attempt: 1, endAt: '' },
  ...{ address: 'guest', port: 1, metadata: {}, freeze: null, collapse: null },
});

test('gateways that take an attempt over from each other while they call its hook wait for the same run', async () => {
  const directory = scratch();
  const file = join(directory, 'told');
  const options = { directory: join(directory, 'runs'), limitMs: 60_000, path: process.env.PATH ?? '' };
  const gateways = await Promise.all(
    Array.from({ length: 8 }, () => CommandHook.open({ ...options, command: record(file) })),
  );
  const signal = new AbortController().signal;
  for (let attempt = 0; attempt < 8; attempt++)
    await Promise.all(gateways.map((gateway) => gateway.run(request(`one-${attempt}`), signal)));
  expect(hookCalls(file).map(({ expiryID }) => expiryID)).toEqual(
    Array.from({ length: 8 }, (_, attempt) => `one-${attempt}`),
  );
  expect(JSON.parse(readFileSync(join(directory, 'runs/one-0/request.json'), 'utf8'))).toEqual(
    request('one-0'),
  );
});

test('a run whose success is recorded takes no room for longer than a minute, and any other one is kept', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => {
    vi.useRealTimers();
  });
  const directory = scratch();
  const options = { directory, limitMs: 10_000, path: process.env.PATH ?? '' };
  const run = async (command: string, expiryID: string) => {
    const hook = await CommandHook.open({ ...options, command });
    await hook.run(request(expiryID), new AbortController().signal);
    return hook;
  };
  // Without the record, another gateway calls the hook for the same attempt, however late.
  await run('true', 'unrecorded');
  (await run('true', 'done')).forget('done');
  await expect(run('false', 'failed')).rejects.toThrow('exit code 1');
  expect(readdirSync(directory).sort()).toEqual(['done', 'failed', 'unrecorded']);
  const files = (run: string) => readdirSync(join(directory, run));
  const patient = { timeout: 120_000 };
  await vi.waitFor(() => expect(files('done')).not.toContain('request.json'), patient);
  expect(files('unrecorded')).toContain('request.json');
  await vi.advanceTimersByTimeAsync(60_000);
  await vi.waitFor(() => expect(readdirSync(directory).sort()).toEqual(['failed', 'unrecorded']), patient);
});

test('a command that writes without end fills no disk, and what it leaves behind does not delay its answer', async () => {
  const directory = scratch();
  const options = { directory, limitMs: 60_000, path: process.env.PATH ?? '' };
  const run = async (command: string, expiryID: string) => {
    const hook = await CommandHook.open({ ...options, command });
    return hook.run({ ...request(expiryID), event: 'create' }, new AbortController().signal);
  };
  const size = (name: string) => statSync(join(directory, name, 'output')).size;
  await expect(run('yes | head -c 30000000; exit 7', 'long')).rejects.toThrow('exit code 7');
  expect(size('long')).toBe(256 * 1024);
  expect(await run('echo first; echo last', 'short')).toBe('last');
  // It writes on when the command has ended.
  const left = `(while sleep 0.01; do yes | head -c 100000; echo x >>'${directory}/ticks'; done) & echo $! >'${directory}/pid'`;
  await run(left, 'leaves');
  const pid = Number(readFileSync(join(directory, 'pid'), 'utf8'));
  onTestFinished(() => {
    process.kill(pid);
  });
  const ticks = () => statSync(join(directory, 'ticks'), { throwIfNoEntry: false })?.size ?? 0;
  await until('it has written more than is kept', () => ticks() > 10);
  expect(size('leaves')).toBeLessThanOrEqual(256 * 1024);
});

test('of runs that have failed only the last ones are kept', async () => {
  const directory = scratch();
  const hook = await CommandHook.open({
    directory,
    limitMs: 60_000,
    path: process.env.PATH ?? '',
    command: 'false',
  });
  const runs = Array.from({ length: 110 }, (_, index) => `run-${index}`);
  const { signal } = new AbortController();
  const failed = (run: string) => expect(hook.run(request(run), signal)).rejects.toThrow('exit code 1');
  await Promise.all(runs.map(failed));
  await until('the first ones are gone', () => readdirSync(directory).length === 100);
  await hook.run(request('last'), signal).catch(() => {});
  expect(readdirSync(directory)).toContain('last');
});
