import { once } from 'node:events';
import { Agent, request, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { onAbort } from '../base/abort.ts';
import type { Connections } from '../base/connections.ts';
import { monotonicMs } from '../base/monotonic.ts';
import { peerOf } from './os/socket-handle.ts';
import { type Caller, firstCalls, type RehearsedCall } from './rehearsed-calls.ts';

/** Rounds after which V8 has compiled the code of a response, and has what it learns of each: docs/decisions/044-rehearsal.md. */
const ROUNDS = 24;
const ROUNDS_AGAIN = 12;
/** In one round of this many bodies come after their heads, and are read in another way: those in the manner of connect-node. */
const ROUNDS_SPLIT = 3;
/** In one round of this many, also what the daemon does by itself after a resume. */
const ROUNDS_BESIDES = 6;
/** No round begins after this time for each, in milliseconds. */
const ROUND_LIMIT_MS = 170;
/** Limit of a call, in milliseconds; the rehearsal ends there. */
const CALL_LIMIT_MS = 1000;

/** A second daemon within this one, whose calls have no effects and are neither logged nor counted. */
export interface Understudy {
  readonly server: Server;
  /** Forgets what the previous round has set, and freezes what is thawed, as before a resume. */
  asResumed(): Promise<void>;
  readonly caller: Caller;
  /** What the daemon does by itself after the first calls. */
  besides(): Promise<void>;
  /** Ends what is left of its processes, and removes its files. */
  kill(): Promise<void>;
}

/** A call whose body is sent when `untilBody` resolves; null: with its head. */
interface SentCall extends RehearsedCall {
  readonly untilBody: (() => Promise<unknown>) | null;
}

/**
 * Makes the calls of the first callers after a resume before the pause, so that the compiled code and the caches that
 * they need exist by then: garbage collection drops them. The calls reach `server` over real connections, but the
 * understudy serves them. Stops without an error after some seconds, when a call hangs, when `signal` aborts, and when the
 * server is not listening.
 * @param isAgain only until V8 has learnt again what a collection has dropped
 */
export async function rehearse(
  server: Server,
  connections: Connections,
  understudy: Understudy,
  isAgain: boolean,
  signal: AbortSignal,
): Promise<void> {
  const address = server.address();
  if (address === null || typeof address === 'string') return;
  const rounds = isAgain ? ROUNDS_AGAIN : ROUNDS;
  const enough = monotonicMs() + rounds * ROUND_LIMIT_MS;
  // Not one of `AbortSignal.timeout` a call: their timers would expire after the resume.
  const end = new AbortController();
  const removeListener = onAbort(signal, () => end.abort());
  const ours = new Set<Socket>();
  connections.divert = (socket) => isOneOf(ours, socket) && understudy.server.emit('connection', socket);
  try {
    for (let round = 0; round < rounds && monotonicMs() < enough; round++) {
      await understudy.asResumed();
      const calls = firstCalls(round, understudy.caller);
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
  { method, path, headers, body, untilBody }: SentCall,
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
  const peer = peerOf(accepted);
  if (!peer) return false;
  const from = peer.address.replace(/^::ffff:/, '');
  return [...ours].some(
    ({ localPort, localAddress }) =>
      localPort === peer.port && localAddress?.replace(/^::ffff:/, '') === from,
  );
}
