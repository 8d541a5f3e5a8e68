import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { Agent, type OutgoingHttpHeaders, request, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { onAbort } from '../base/abort.ts';
import type { Connections } from '../base/connections.ts';
import type { Codec } from './rpc/codec.ts';
import { startFrame } from './rpc/process-messages.ts';

/** Rounds after which V8 has compiled the code of a response: docs/decisions/044-rehearsal.md. */
const ROUNDS = 30;
/** In one round of this many bodies come after their heads: they are read in another way. */
const ROUNDS_SPLIT = 3;
/** In one round of this many, also what the daemon does by itself after a resume. */
const ROUNDS_BESIDES = 6;
/** No round begins after this time, in milliseconds. */
const ENOUGH_MS = 5000;
/** How long the rehearsed pause takes, in milliseconds. */
const PAUSE_MS = 10_000;
/** Limit of a call, in milliseconds; the rehearsal ends there. */
const CALL_LIMIT_MS = 1000;

/** A second daemon within this one, whose calls have no effects and are neither logged nor counted. */
export interface Understudy {
  readonly server: Server;
  /** Forgets what the previous round has set, and freezes what is thawed, as before a resume. */
  asResumed(): Promise<void>;
  /** What its operations require. */
  readonly token: string;
  /** What the daemon does by itself after the first calls. */
  besides(): Promise<void>;
  /** Ends what is left of its processes, and removes its files. */
  kill(): Promise<void>;
}

/** A call of the platform or of a client. */
interface Call {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array;
}

/** A call whose body is sent when `untilBody` resolves; null: with its head. */
interface SentCall extends Call {
  readonly untilBody: (() => Promise<unknown>) | null;
}

/**
 * Makes the calls of the first callers after a resume before the pause, so that the compiled code and the caches that
 * they need exist by then: garbage collection drops them. The calls reach `server` over real connections, but the
 * understudy serves them. Stops without an error after 5 s, when a call hangs, when `signal` aborts, and when the
 * server is not listening.
 */
export async function rehearse(
  server: Server,
  connections: Connections,
  understudy: Understudy,
  signal: AbortSignal,
): Promise<void> {
  const address = server.address();
  if (address === null || typeof address === 'string') return;
  const enough = performance.now() + ENOUGH_MS;
  // Not one of `AbortSignal.timeout` a call: their timers would expire after the resume.
  const end = new AbortController();
  const removeListener = onAbort(signal, () => end.abort());
  const ours = new Set<Socket>();
  connections.divert = (socket) => isOneOf(ours, socket) && understudy.server.emit('connection', socket);
  try {
    for (let round = 0; round < ROUNDS && performance.now() < enough; round++) {
      await understudy.asResumed();
      const calls = firstCalls(
        understudy.token,
        round % 2 === 0 ? 'json' : 'binary',
        STARTS[round % STARTS.length],
      );
      const untilBody = round % ROUNDS_SPLIT === 1 ? () => seesHead(understudy.server) : null;
      await connectAndCall(
        address,
        calls.map((call) => ({ ...call, untilBody })),
        ours,
        end,
      );
      if (round % ROUNDS_BESIDES === 0) await understudy.besides().catch(() => {});
    }
  } catch {
    // An optimisation only: a pause must not fail because of it.
  } finally {
    removeListener();
    connections.divert = null;
    await understudy.kill();
  }
}

/** Resolves when `server` has begun to serve a request, and has not found its body. */
async function seesHead(server: Server): Promise<void> {
  await once(server, 'request');
  await nextTurn();
  await nextTurn();
}

/** What is started in turn: what is over before its start is told, and what its client waits for, and could write to. */
const STARTS = [
  { process: { cmd: '/bin/true', cwd: '/' }, stdin: false },
  { process: { cmd: '/bin/true', cwd: '/' }, stdin: false },
  { process: { cmd: '/bin/sleep', args: ['0.01'], envs: { NAME: 'value' } }, stdin: true },
  { process: { cmd: '/bin/sleep', args: ['0.01'], envs: { NAME: 'value' } }, stdin: true },
];

/** The calls in the order in which they come after a resume, over one connection. `codec`: of streams. */
function firstCalls(token: string, codec: Codec, start: (typeof STARTS)[number] | undefined): Call[] {
  const stream = `application/connect+${codec === 'json' ? 'json' : 'proto'}`;
  // Ahead, so that the clock would have to be set.
  const timestamp = new Date(Date.now() + PAUSE_MS);
  // Each time another life, of which the metadata are read.
  const lifecycleID = randomUUID();
  const settings = {
    accessToken: token,
    timestamp,
    lifecycleID,
    envVars: { NAME: 'value' },
    defaultUser: 'root',
  };
  const authorized = { 'x-access-token': token, authorization: `Basic ${btoa('root:')}` };
  const typed = (type: string) => ({ ...authorized, 'content-type': type, 'connect-timeout-ms': '60000' });
  const json = 'application/json';
  const post = (path: string, headers: OutgoingHttpHeaders, body: string | Buffer): Call => {
    return { method: 'POST', path, headers, body };
  };
  return [
    { method: 'GET', path: '/health' },
    post('/init', { 'content-type': json }, JSON.stringify(settings)),
    post('/process.Process/Start', typed(stream), startFrame(start ?? {}, codec)),
    post('/filesystem.Filesystem/Stat', typed(json), '{"path":"/"}'),
    { method: 'GET', path: '/files?path=/etc/passwd', headers: authorized },
  ];
}

async function connectAndCall(
  address: AddressInfo,
  calls: readonly SentCall[],
  ours: Set<Socket>,
  end: AbortController,
): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  try {
    for (const call of calls) await callOnce(address, call, agent, ours, end);
  } finally {
    agent.destroy();
  }
}

/** Aborts `end` when the response takes too long. */
async function callOnce(
  { address: host, port }: AddressInfo,
  { method, path, headers = {}, body, untilBody }: SentCall,
  agent: Agent,
  ours: Set<Socket>,
  end: AbortController,
): Promise<void> {
  // Connecting to a wildcard address (0.0.0.0, ::) reaches this machine.
  const call = request({ host, port, method, path, headers, agent, signal: end.signal });
  call.on('socket', (socket: Socket) => {
    if (ours.has(socket)) return;
    ours.add(socket);
    socket.once('close', () => ours.delete(socket));
  });
  const timer = setTimeout(() => end.abort(), CALL_LIMIT_MS);
  try {
    const answered = once(call, 'response');
    if (body && untilBody) {
      const seen = untilBody();
      call.flushHeaders();
      await Promise.race([seen, answered]);
    }
    call.end(body);
    const [response] = await answered;
    await once(response.resume(), 'end');
  } finally {
    clearTimeout(timer);
  }
}

/** Whether `accepted` is the other end of one of these connections. */
function isOneOf(ours: ReadonlySet<Socket>, accepted: Socket): boolean {
  const from = accepted.remoteAddress?.replace(/^::ffff:/, '');
  return [...ours].some(
    ({ localPort, localAddress }) =>
      localPort === accepted.remotePort && localAddress?.replace(/^::ffff:/, '') === from,
  );
}
