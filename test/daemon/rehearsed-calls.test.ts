import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { DAEMON_PROGRAM, startDaemon } from '../support/daemon.ts';
import { freePort } from '../support/free-port.ts';
import { startMetadataService } from '../support/metadata-service.ts';
import { startSupervised } from '../support/supervised.ts';
import { until } from '../support/until.ts';

/*
 * V8 drops the code of functions at a collapse, and compiles it anew when they are called. The first one that is compiled after a
 * resume costs hundreds of frames, so the rehearsal calls all that the first callers need: docs/decisions/044-rehearsal.md.
 */

/** What chance may bring to a round: a write that waits, a look at the ports. */
const ROUNDS = 4;
/** What the daemon does by itself, at times of its own. */
const BY_ITSELF = /^(src\/daemon\/compose(-ports)?\.ts|node:internal\/(inspector|process\/per_thread))/;

interface Target {
  readonly webSocketDebuggerUrl: string;
}

interface Reply {
  readonly id?: number;
  readonly result?: { readonly result?: readonly Script[] };
}

interface Script {
  readonly url: string;
  readonly functions: readonly {
    readonly functionName: string;
    readonly ranges: readonly { readonly startOffset: number; readonly count: number }[];
  }[];
}

/** Counts calls of functions in the daemon at this port of its inspector. */
async function openCoverage(port: number) {
  const [target] = (await (await fetch(`http://127.0.0.1:${port}/json/list`)).json()) as Target[];
  const socket = new WebSocket(target?.webSocketDebuggerUrl ?? '');
  await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }));
  const waiting = new Map<number, (reply: Reply) => void>();
  socket.addEventListener('message', ({ data }) => {
    const reply: Reply = JSON.parse(String(data));
    waiting.get(reply.id ?? 0)?.(reply);
  });
  let last = 0;
  const send = (method: string, params: object = {}) => {
    const id = ++last;
    socket.send(JSON.stringify({ id, method, params }));
    return new Promise<Reply>((resolve) => waiting.set(id, resolve));
  };
  await send('Profiler.enable');
  await send('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  /** The functions that were called since the last time, by place. */
  const take = async (): Promise<ReadonlySet<string>> => {
    const { result } = await send('Profiler.takePreciseCoverage');
    const called = (result?.result ?? []).flatMap(({ url, functions }) =>
      functions
        .filter(({ ranges: [range] }) => range && range.count > 0)
        .map(({ functionName, ranges }) => {
          const file = url.replace(/^.*\/(?=(src|node_modules)\/)/, '');
          return `${file}: ${functionName || 'anonymous'} at ${ranges[0]?.startOffset}`;
        }),
    );
    return new Set(called);
  };
  // Node does not end before.
  return { take, [Symbol.dispose]: () => socket.close() };
}

test('the first calls after a collapse call no function that it has not called', async () => {
  const inspector = await freePort();
  await using service = await startMetadataService();
  service.metadata = { instanceID: 'box' };
  const prefix = 'envdrehearsed';
  onTestFinished(() => rmSync(`/run/${prefix}`, { recursive: true, force: true }));
  await using supervised = await startSupervised(
    { args: [`--metadata-service=${service.url}`, `--name-prefix=${prefix}`] },
    [`--inspect=127.0.0.1:${inspector}`],
  );
  const { url } = supervised.daemon;
  const headers = { 'content-type': 'application/json', 'x-access-token': 'secret' };
  const init = (lifecycleID: string) =>
    fetch(`${url}/init`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ accessToken: 'secret', lifecycleID }),
    });
  expect((await init('first')).status).toBe(204);
  using coverage = await openCoverage(inspector);
  const { take } = coverage;
  const cold: string[][] = [];
  for (let round = 0; round < ROUNDS && cold.at(-1)?.length !== 0; round += 1) {
    await take();
    expect((await fetch(`${url}/freeze?maxWaitMs=5000`, { method: 'POST', headers })).status).toBe(200);
    expect((await fetch(`${url}/collapse`, { method: 'POST', headers })).status).toBe(200);
    const rehearsed = await take();
    expect(rehearsed.size).toBeGreaterThan(500);
    // As another sandbox.
    service.metadata = { instanceID: `box-${round}` };
    const read = service.requests.length;
    expect((await fetch(`${url}/health`)).status).toBe(204);
    expect((await init(`life-${round}`)).status).toBe(204);
    await until('the metadata are read', () => service.requests.length >= read + 2);
    expect(await initInPieces(url)).toBe(204);
    expect(await startShell(url)).toContain('"exited":true');
    const called = await take();
    expect(called.size).toBeGreaterThan(500);
    cold.push([...called].filter((name) => !rehearsed.has(name) && !BY_ITSELF.test(name)));
  }
  expect(cold).toContainEqual([]);
});

/** An /init whose body comes after its head. Resolves with the status. */
async function initInPieces(url: string): Promise<number | undefined> {
  const sent = request(`${url}/init`, { method: 'POST' });
  const answered = once(sent, 'response');
  sent.flushHeaders();
  // By the time of this answer the daemon has the head.
  await fetch(`${url}/health`);
  sent.end(JSON.stringify({ accessToken: 'secret', envVars: { PADDING: 'x'.repeat(2000) } }));
  const [response]: IncomingMessage[] = await answered;
  return response?.resume().statusCode;
}

/** As the clients' libraries start a command. Resolves with the stream. */
async function startShell(url: string): Promise<string> {
  const message = Buffer.from(
    JSON.stringify({ process: { cmd: '/bin/bash', args: ['-l', '-c', 'true'], envs: {} }, stdin: false }),
  );
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  const headers = {
    'content-type': 'application/connect+json',
    'connect-protocol-version': '1',
    'connect-timeout-ms': '60000',
    'x-access-token': 'secret',
    authorization: `Basic ${Buffer.from('root:').toString('base64')}`,
  };
  const body = Buffer.concat([head, message]);
  const response = await fetch(`${url}/process.Process/Start`, { method: 'POST', headers, body });
  return await response.text();
}

/** What waits for a time of its own: lines of the log, the next look at the daemon's work, and at the ports. */
const TIMED = /^src\/(base\/(held-output|repeated)|daemon\/services\/collapse\/idle-trim)\.ts/;

test('neither do timers that expire after a collapse', async () => {
  const inspector = await freePort();
  await using daemon = await startDaemon({
    command: [process.execPath, `--inspect=127.0.0.1:${inspector}`, DAEMON_PROGRAM],
  });
  using coverage = await openCoverage(inspector);
  const { take } = coverage;
  await take();
  expect((await fetch(`${daemon.url}/collapse`, { method: 'POST' })).status).toBe(200);
  const rehearsed = await take();
  // A line of the log, which waits for a second.
  expect((await fetch(`${daemon.url}/envs`)).status).toBe(200);
  const called = new Set<string>();
  await until('each timer has expired', async () => {
    for (const name of await take()) if (TIMED.test(name)) called.add(name);
    return ['held-output.ts: flush', 'repeated.ts', 'idle-trim.ts'].every((part) =>
      [...called].some((name) => name.includes(part)),
    );
  });
  expect([...called].filter((name) => !rehearsed.has(name))).toEqual([]);
});
