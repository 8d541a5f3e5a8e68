import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { headerOfSecret } from '../../base/program/secrets.ts';
import type { Registration } from '../leases/sandbox.ts';
import { checkResponse } from '../proxy/response-checks.ts';
import { limitResponse } from '../proxy/upstream-connection.ts';
import { type FigureKinds, type Figures, invalidResponse, readAllFigures, readFigures } from './figures.ts';

/** Where to call a daemon. */
export type SandboxDaemon = Pick<Registration, 'address' | 'port' | 'accessToken'>;

/** How long the daemon waits for its cgroups to read back frozen, in ms. */
const FREEZE_WAIT_MS = 5000;
/**
 * How long an operation may take until its response is complete, in ms: little longer than a daemon needs, as a guest that is slow
 * keeps others waiting.
 */
const TIMEOUT_MS = FREEZE_WAIT_MS + 2000;
const COLLAPSE_TIMEOUT_MS = 5000;
const INIT_TIMEOUT_MS = 2000;
/** The most bytes of a response. A daemon sends a few hundred; a guest whose root is lost may send anything. */
const RESPONSE_LIMIT = 16 * 1024;
/** How much of the body of a refusal is quoted, in characters. */
const QUOTED = 500;

/** The response to `POST /freeze`. */
const FREEZE = {
  mode: 'word',
  visited: 'count',
  allowlisted: 'count',
  truncated: 'boolean',
  preFrozen: 'count',
  requested: 'count',
  frozen: 'count',
  notFrozen: 'count',
  failed: 'count',
  unobservable: 'count',
  sweepMs: 'count',
  waitMs: 'count',
} as const;

/** The response to `POST /collapse`. */
const COLLAPSE = {
  regions: 'count',
  chunks: 'count',
  collapsed: 'count',
  alreadyHuge: 'count',
  skipped: 'count',
  elapsedMs: 'count',
} as const;

/** The response to `GET /metrics`. */
const METRICS = {
  ts: 'count',
  cpu_count: 'count',
  cpu_used_pct: 'part',
  mem_total: 'count',
  mem_used: 'count',
  mem_cache: 'count',
  disk_total: 'count',
  disk_used: 'count',
} as const;

/** The counts of cgroups that are not known to be frozen. */
const NOT_FROZEN = ['notFrozen', 'failed', 'unobservable'] as const;

/** Freezes the workload of a guest. Throws when not all of it is frozen, or the daemon does not answer. */
export async function freeze(daemon: SandboxDaemon, signal: AbortSignal): Promise<Figures<typeof FREEZE>> {
  const operation = `/freeze?maxWaitMs=${FREEZE_WAIT_MS}`;
  const figures = await ask(daemon, operation, FREEZE, TIMEOUT_MS, signal);
  const missing = NOT_FROZEN.find((name) => figures[name] === undefined);
  if (missing !== undefined) throw invalidResponse(operation, `member ${missing} is missing`);
  const running = NOT_FROZEN.filter((name) => figures[name] !== 0);
  if (running.length > 0 || figures.truncated === true) {
    throw new EnvdError('failed_precondition', `the guest is not frozen: ${JSON.stringify(figures)}`);
  }
  return figures;
}

/** Asks a daemon to collapse its memory into huge pages. */
export function collapse(daemon: SandboxDaemon, signal: AbortSignal): Promise<Figures<typeof COLLAPSE>> {
  return ask(daemon, '/collapse', COLLAPSE, COLLAPSE_TIMEOUT_MS, signal);
}

/** A guest's current use: CPU in per cent, memory and disk in bytes, and when it was measured (Unix seconds). */
export async function measure(daemon: SandboxDaemon): Promise<Required<Figures<typeof METRICS>>> {
  const body = await call(daemon, '/metrics', TIMEOUT_MS, undefined, 'GET');
  return readAllFigures('/metrics', body, METRICS);
}

/** Whether processes run that clients have started. */
export async function hasProcesses(daemon: SandboxDaemon, signal: AbortSignal): Promise<boolean> {
  const operation = '/process.Process/List';
  const answer: unknown = JSON.parse(await call(daemon, operation, TIMEOUT_MS, signal, 'POST', '{}'));
  if (typeof answer !== 'object' || answer === null) throw invalidResponse(operation, 'it is no JSON object');
  const processes = 'processes' in answer ? answer.processes : [];
  if (!Array.isArray(processes)) throw invalidResponse(operation, 'member processes is not a list');
  return processes.length > 0;
}

/** Gives a daemon its token, and what else `POST /init` takes. */
export async function init(daemon: SandboxDaemon, settings: object, signal: AbortSignal): Promise<void> {
  const body = JSON.stringify({ ...settings, accessToken: daemon.accessToken });
  await call(daemon, '/init', INIT_TIMEOUT_MS, signal, 'POST', body);
}

/** Thaws the workload of a guest; does nothing when it is not frozen. */
export async function thaw(daemon: SandboxDaemon, signal?: AbortSignal): Promise<void> {
  await call(daemon, '/unfreeze', TIMEOUT_MS, signal);
}

async function ask<S extends FigureKinds>(
  daemon: SandboxDaemon,
  operation: string,
  shape: S,
  limitMs: number,
  signal: AbortSignal,
): Promise<Figures<S>> {
  return readFigures(operation, await call(daemon, operation, limitMs, signal), shape);
}

/**
 * Calls an operation of a daemon, and returns the body of its response. Throws `unavailable` when the response is not
 * complete within `limitMs`, and `failed_precondition` when its status is not 2xx.
 */
async function call(
  { address, port, accessToken }: SandboxDaemon,
  operation: string,
  limitMs: number,
  signal?: AbortSignal,
  method: 'GET' | 'POST' = 'POST',
  sent = '',
): Promise<string> {
  const limit = AbortSignal.timeout(limitMs);
  let status = 0;
  let body = '';
  try {
    const outgoing = request({
      host: address,
      port,
      path: operation,
      method,
      agent: false,
      headers: {
        'content-length': Buffer.byteLength(sent),
        ...(sent !== '' && { 'content-type': 'application/json' }),
        ...(accessToken !== null && { 'x-access-token': headerOfSecret(accessToken) }),
      },
      signal: signal ? AbortSignal.any([limit, signal]) : limit,
    });
    const response = await responseTo(outgoing, sent);
    checkResponse(response);
    status = response.statusCode ?? 0;
    body = await text(response);
  } catch (error) {
    const reason = limit.aborted ? `not within ${limitMs / 1000} s` : messageOf(error);
    throw new EnvdError('unavailable', `${operation} was not answered: ${reason}`, { cause: error });
  }
  if (status >= 200 && status < 300) return body;
  throw new EnvdError(
    'failed_precondition',
    `${operation} was answered with ${status}: ${body.slice(0, QUOTED)}`,
  );
}

/** Sends a request and resolves with the head of its response. The size of the response is limited. */
function responseTo(outgoing: ClientRequest, body: string): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  limitResponse(outgoing, RESPONSE_LIMIT);
  outgoing.once('response', resolve);
  outgoing.on('error', reject);
  // Node destroys a request that is upgraded without asking, and emits no error.
  outgoing.once('close', () => reject(new Error('the connection was closed')));
  outgoing.end(body);
  return promise;
}
