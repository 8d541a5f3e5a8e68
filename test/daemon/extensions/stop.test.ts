import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { runs } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* POST /processes/{pid or tag}/stop: SIGTERM, SIGKILL after the grace, and an answer when nothing is left. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());
beforeEach(() => needs('cgroup v2'));

async function stop(name: string | number, body: unknown = undefined) {
  const init = { method: 'POST', ...(body !== undefined && { body: JSON.stringify(body) }) };
  const response = await fetch(`${daemon.url}/processes/${name}/stop`, init);
  return { status: response.status, body: (await response.json()) as { message: string } };
}

/** Starts a script that prints the pids of its children and `ready`; resolves with all pids. */
async function running(
  script: string,
  tag?: string,
  onOutput: (output: string) => void = () => {},
): Promise<{ pid: number; children: number[]; ended: Promise<unknown> }> {
  const { promise, resolve } = Promise.withResolvers<{ pid: number; children: number[] }>();
  let output = '';
  const request = { process: { cmd: 'sh', args: ['-c', script] }, ...(tag !== undefined && { tag }) };
  const ended = transcribe(connectTo(daemon.url).process.start(request), (event, { pid }) => {
    if (event.case !== 'data') return;
    output += Buffer.from(event.value.output.value ?? []);
    onOutput(output);
    if (output.includes('ready')) resolve({ pid, children: Array.from(output.matchAll(/\d+/g), Number) });
  });
  return { ...(await promise), ended };
}

test('a process that obeys SIGTERM', async () => {
  const { pid } = await running("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done", 'polite');
  const { status, body } = await stop('polite');
  expect(status).toBe(200);
  expect(body).toMatchObject({
    pid,
    tag: 'polite',
    killed: false,
    exitCode: 7,
    exited: true,
    reason: 'exited',
    signal: null,
  });
  expect(runs(pid)).toBe(false);
});

test('a tree that ignores SIGTERM, in sessions of its own, is killed after the grace', async () => {
  const script = "trap '' TERM; setsid sleep 1000 & echo $!; setsid sleep 1000 & echo $! ready; wait";
  const { pid, children } = await running(script);
  const before = performance.now();
  const { body } = await stop(pid, { graceMs: 300 });
  expect(performance.now() - before).toBeGreaterThanOrEqual(300);
  expect(body).toMatchObject({
    pid,
    tag: null,
    killed: true,
    exitCode: -1,
    signal: 'SIGKILL',
    reason: 'signaled',
  });
  expect(children).toHaveLength(2);
  expect([pid, ...children].filter(runs)).toEqual([]);
});

test('children that outlive the process are waited for, and killed', async () => {
  const script = `sh -c 'trap "" TERM; echo $$ ready; exec sleep 1000' & exec sleep 1000`;
  const { pid, children } = await running(script);
  const { body } = await stop(pid, { graceMs: 500 });
  expect(body).toMatchObject({ killed: true, signal: 'SIGTERM' });
  expect([pid, ...children].filter(runs)).toEqual([]);
});

test('a stopped, and a frozen, process', async () => {
  const { pid } = await running('echo ready; kill -STOP $$');
  await until('it is stopped', () => /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')));
  expect((await stop(pid, { graceMs: 100 })).body).toMatchObject({ killed: true, signal: 'SIGKILL' });
  const { pid: frozen } = await running("trap '' TERM; echo ready; while :; do sleep 0.05; done");
  await fetch(`${daemon.url}/freeze?maxWaitMs=2000`, { method: 'POST' });
  expect((await stop(frozen, { graceMs: 100 })).body).toMatchObject({ killed: true });
  await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
});

test('it goes on when its client leaves', async () => {
  let isAsked = false;
  const { pid, ended } = await running(
    "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done",
    undefined,
    (output) => {
      isAsked ||= output.includes('asked');
    },
  );
  const left = new AbortController();
  const call = fetch(`${daemon.url}/processes/${pid}/stop`, {
    method: 'POST',
    body: '{"graceMs":3000}',
    signal: left.signal,
  });
  const refused = expect(call).rejects.toThrow();
  await until('the stop has begun', () => isAsked);
  left.abort();
  await refused;
  await ended;
  expect(runs(pid)).toBe(false);
});

test('many stops with a long grace whose clients have left hold up no other, and a shorter grace counts', async () => {
  const asked = new Set<number>();
  const all = await Promise.all(
    Array.from({ length: 71 }, (_, index) =>
      running("trap 'echo asked' TERM; echo ready; while :; do sleep 10; done", undefined, (output) => {
        if (output.includes('asked')) asked.add(index);
      }),
    ),
  );
  const left = new AbortController();
  const waiting: Promise<unknown>[] = [];
  // One by one, because only so many bodies may be received at a time.
  for (const { pid } of all) {
    const init = { method: 'POST', body: '{"graceMs":600000}', signal: left.signal };
    waiting.push(fetch(`${daemon.url}/processes/${pid}/stop`, init));
    await until('the stop has begun', () => asked.size === waiting.length);
  }
  left.abort();
  expect((await Promise.allSettled(waiting)).every(({ status }) => status === 'rejected')).toBe(true);
  const [first, ...others] = all;
  const { status, body } = await stop(first?.pid ?? 0, { graceMs: 100 });
  expect([status, body]).toEqual([200, expect.objectContaining({ killed: true })]);
  const stopped = await Promise.all(others.map(({ pid }) => stop(pid, { graceMs: 0 })));
  expect(stopped.every((each) => each.status === 200)).toBe(true);
  expect(others.filter(({ pid }) => runs(pid))).toEqual([]);
});

test('what it cannot do is an error', async () => {
  expect(await stop('999999999')).toEqual({
    status: 404,
    body: { code: 404, message: 'process with pid 999999999 not found' },
  });
  expect((await stop('no-such-tag')).body.message).toBe('process with tag no-such-tag not found');
  for (const body of [{ graceMs: -1 }, { graceMs: 1e9 }, { graceMs: 'a' }, []])
    expect((await stop(1, body)).status).toBe(400);
  for (const method of ['GET', 'DELETE']) {
    const response = await fetch(`${daemon.url}/processes/1/stop`, { method });
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'POST']);
  }
});

test('without a cgroup nothing could be proved: it is refused', async () => {
  const { pid, ended } = await running('echo ready; exec sleep 1000', '_system');
  const { status, body } = await stop(pid);
  expect([status, body.message]).toEqual([
    412,
    `process ${pid} has no cgroup of its own: its tree cannot be signaled`,
  ]);
  const { process } = connectTo(daemon.url);
  await process.sendSignal({ process: { selector: { case: 'pid', value: pid } }, signal: 9 });
  await ended;
});
