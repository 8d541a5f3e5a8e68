import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, type TestContext, test } from 'vitest';
import { byPid, connectTo } from '../../support/clients/clients.ts';
import { connectRequest, startRequest } from '../../support/clients/raw-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* Clients stop reading the output of a process, which waits for them. Others who want it must not wait for long. */

const MIB = 1024 * 1024;
const DROPPED = 'reader dropped: it has taken nothing for 5 s while others wait, connect again';
const FROM_START = { stdout: 0n, stderr: 0n, pty: 0n };

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon({ args: ['--history-bytes=1048576'] });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

type Context = Pick<TestContext, 'onTestFinished'>;

/** A client that sends a request and reads nothing. */
function stall({ onTestFinished }: Context, request: Buffer, { port } = daemon): Socket {
  const client = connect(port, '127.0.0.1');
  onTestFinished(() => void client.destroy());
  client.pause();
  client.write(request);
  return client;
}

/** A process that writes without end, and its first client, who reads nothing. */
async function stalledStart(
  context: Context,
  tag: string,
  at = daemon,
): Promise<{ pid: number; client: Socket }> {
  const { process } = connectTo(at.url, 'binary');
  const client = stall(context, startRequest({ process: { cmd: 'yes' }, tag }, 'binary'), at);
  const pid = await until('it has started', async () => {
    const { processes } = await process.list({});
    return processes.find((one) => one.tag === tag)?.pid;
  });
  context.onTestFinished(async () => void (await process.sendSignal({ process: byPid(pid), signal: 9 })));
  return { pid, client };
}

/** Reads until there were so many bytes, and leaves; resolves with the kinds of the events. */
async function read(
  pid: number,
  wanted: number,
  from: { resumeFrom?: object } = {},
  at = daemon,
): Promise<string[]> {
  const { process } = connectTo(at.url, 'binary');
  const kinds = new Set<string>();
  let bytes = 0;
  for await (const { event } of process.connect({ process: byPid(pid), ...from })) {
    const { case: kind, value } = event?.event ?? {};
    kinds.add(String(kind));
    if (kind === 'data') bytes += value?.output.value?.length ?? 0;
    if (bytes >= wanted) break;
  }
  expect(bytes).toBeGreaterThanOrEqual(wanted);
  return [...kinds];
}

/** What a client is told at last, once it reads again. */
async function lastWords(client: Socket): Promise<string> {
  let tail = '';
  for await (const piece of client) {
    tail = (tail + piece.toString('latin1')).slice(-1000);
    if (tail.includes('reader dropped')) break;
  }
  return tail;
}

function isBlocked(pid: number): boolean {
  return readFileSync(`/proc/${pid}/wchan`, 'utf8').includes('pipe');
}

async function untilBlocked(pid: number): Promise<void> {
  await until('the process waits for its readers', () => isBlocked(pid));
}

// Each takes seconds, in which nothing happens.
describe.concurrent('a client that has stalled', () => {
  test('does not hold up one that comes later, and is told so', async (context) => {
    const { pid, client } = await stalledStart(context, 'later');
    await untilBlocked(pid);
    expect(await read(pid, 16 * MIB)).toEqual(['start', 'data']);
    expect(await lastWords(client)).toContain(DROPPED);
  });

  test('does not hold up one that came before, and one that resumes', async (context) => {
    const { pid } = await stalledStart(context, 'before');
    const early = read(pid, 16 * MIB);
    await untilBlocked(pid);
    const resumed = read(pid, 16 * MIB, { resumeFrom: FROM_START });
    expect(await early).toEqual(['start', 'data']);
    // A gap, too, if more has been written by now than is kept.
    expect(await resumed).toEqual(expect.arrayContaining(['start', 'data']));
  });

  test('does not hold up others when there are several of it', async (context) => {
    const { pid, client } = await stalledStart(context, 'several');
    for (const codec of ['json', 'binary', 'json'] as const)
      stall(context, connectRequest({ process: byPid(pid) }, codec));
    await untilBlocked(pid);
    await Promise.all([read(pid, 8 * MIB), read(pid, 8 * MIB)]);
    expect(await lastWords(client)).toContain(DROPPED);
  });

  test('does not hold up one that comes after a pause and a resume', async (context) => {
    needs('cgroup v2');
    const paused = await startDaemon({ args: ['--history-bytes=1048576'] });
    context.onTestFinished(() => paused[Symbol.asyncDispose]());
    const { pid } = await stalledStart(context, 'paused', paused);
    await untilBlocked(pid);
    const post = async (path: string) => (await fetch(paused.url + path, { method: 'POST' })).status;
    expect([await post('/freeze?maxWaitMs=5000'), await post('/collapse'), await post('/init')]).toEqual([
      200, 200, 204,
    ]);
    expect(await read(pid, 16 * MIB, {}, paused)).toEqual(['start', 'data']);
  });

  test('is waited for when it is slow, and takes something', async (context) => {
    const { pid, client } = await stalledStart(context, 'slow');
    await untilBlocked(pid);
    let other = 0;
    const ended = new AbortController();
    context.onTestFinished(() => ended.abort());
    const { process } = connectTo(daemon.url, 'binary');
    const waiting = (async () => {
      for await (const { event } of process.connect({ process: byPid(pid) }, { signal: ended.signal }))
        if (event?.event.case === 'data') other += event.event.value.output.value?.length ?? 0;
    })().catch(() => undefined);
    // 1 MB/s for twice the time after which a client that takes nothing is dropped. The daemon sees what is taken in lumps of a
    // third of the kernel's buffer.
    let taken = 0;
    const reading = setInterval(() => {
      taken += client.read(20_000)?.length ?? 0;
    }, 20);
    context.onTestFinished(() => clearInterval(reading));
    await until('the slow one has taken 10 MB', () => taken > 10_000_000);
    // The other one had what the kernel holds for the slow one, too. Alone, it gets as much in a moment.
    expect(other).toBeLessThan(taken + 32 * MIB);
    clearInterval(reading);
    const before = other;
    await until('the slow one is dropped', () => other > before + 64 * MIB);
    expect(await lastWords(client)).toContain(DROPPED);
    ended.abort();
    await waiting;
  });
});
