import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { headerOfSecret } from '../../base/program/secrets.ts';
import type { Registration } from '../leases/sandbox.ts';
import { checkResponse } from '../proxy/response-checks.ts';
import { limitResponse } from '../proxy/upstream-connection.ts';
import { type FigureKinds, type Figures, invalidResponse, readAllFigures, readFigures } from './figures.ts';

/** A daemon can be called with these values. */
export type SandboxDaemon = Pick<Registration, 'address' | 'port' | 'accessToken'>;

/** The daemon waits this long for the kernel to report its cgroups as frozen, in ms. */
const FREEZE_WAIT_MS = 5000;
/**
 * The response to an operation must be complete within this time, in ms. It is little more than a daemon needs, because a
 * slow guest delays the expiry of others.
 */
const TIMEOUT_MS = FREEZE_WAIT_MS + 2000;
/** A daemon that has not answered a probe within this time is silent, in ms. */
const PROBE_MS = 1000;
const COLLAPSE_TIMEOUT_MS = 5000;
const INIT_TIMEOUT_MS = 2000;
/** A response may have this many bytes. A daemon sends a few hundred, but a hostile guest may send anything. */
const RESPONSE_LIMIT = 16 * 1024;
/** An error quotes this much of the body of a refusal, in characters. */
const QUOTED = 500;

/** A daemon answers an operation that its guest does not offer with this status. */
const NOT_OFFERED = 412;

/** The daemon has refused an operation. */
class Refused extends EnvdError {
  readonly status: number;

  constructor(operation: string, status: number, body: string) {
    super('failed_precondition', `the daemon answered ${operation} with ${status}: ${body.slice(0, QUOTED)}`);
    this.status = status;
  }
}

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

/** Each of these members counts cgroups that may not be frozen. */
const NOT_FROZEN = ['notFrozen', 'failed', 'unobservable'] as const;

/**
 * Freezes the workload of a guest. Returns null when the guest cannot freeze anything, for instance in a container without
 * cgroups. Throws `failed_precondition` when not all of it is frozen, and `unavailable` when the daemon does not answer.
 */
export async function freeze(
  daemon: SandboxDaemon,
  signal: AbortSignal,
): Promise<Figures<typeof FREEZE> | null> {
  const operation = `/freeze?maxWaitMs=${FREEZE_WAIT_MS}`;
  const body = await call(daemon, operation, TIMEOUT_MS, signal).catch((error: unknown) => {
    if (error instanceof Refused && error.status === NOT_OFFERED) return null;
    throw error;
  });
  if (body === null) return null;
  const figures = readFigures(operation, body, FREEZE);
  const missing = NOT_FROZEN.find((name) => figures[name] === undefined);
  if (missing !== undefined) throw invalidResponse(operation, `member ${missing} is missing`);
  const running = NOT_FROZEN.filter((name) => figures[name] !== 0);
  if (running.length > 0 || figures.truncated === true) {
    throw new EnvdError(
      'failed_precondition',
      `parts of the guest are not frozen: ${JSON.stringify(figures)}`,
    );
  }
  return figures;
}

/** Asks a daemon to collapse its memory into huge pages. Throws `unavailable` or `failed_precondition`. */
export function collapse(daemon: SandboxDaemon, signal: AbortSignal): Promise<Figures<typeof COLLAPSE>> {
  return ask(daemon, '/collapse', COLLAPSE, COLLAPSE_TIMEOUT_MS, signal);
}

/**
 * Returns what a guest uses now: CPU in percent, memory and disk in bytes, and the time of the measurement in Unix seconds.
 * Throws `unavailable` or `failed_precondition`.
 */
export async function measure(daemon: SandboxDaemon): Promise<Required<Figures<typeof METRICS>>> {
  const body = await call(daemon, '/metrics', TIMEOUT_MS, undefined, 'GET');
  return readAllFigures('/metrics', body, METRICS);
}

/** Returns whether processes of clients run. Throws `unavailable` or `failed_precondition` when the daemon does not tell. */
export async function hasProcesses(daemon: SandboxDaemon, signal: AbortSignal): Promise<boolean> {
  const operation = '/process.Process/List';
  const answer: unknown = JSON.parse(await call(daemon, operation, TIMEOUT_MS, signal, 'POST', '{}'));
  if (typeof answer !== 'object' || answer === null)
    throw invalidResponse(operation, 'the body is not a JSON object');
  const processes = 'processes' in answer ? answer.processes : [];
  if (!Array.isArray(processes)) throw invalidResponse(operation, 'member processes is not a list');
  return processes.length > 0;
}

/**
 * Calls `POST /init` with the token of the daemon and more members in `settings`. Throws `unavailable` or
 * `failed_precondition`.
 */
export async function init(daemon: SandboxDaemon, settings: object, signal: AbortSignal): Promise<void> {
  const body = JSON.stringify({ ...settings, accessToken: daemon.accessToken });
  await call(daemon, '/init', INIT_TIMEOUT_MS, signal, 'POST', body);
}

/** Returns false if a daemon is silent: it neither answers within a second nor refuses the connection. */
export async function answers(daemon: SandboxDaemon, signal: AbortSignal): Promise<boolean> {
  const limit = AbortSignal.timeout(PROBE_MS);
  return call(daemon, '/health', 2 * PROBE_MS, AbortSignal.any([limit, signal]), 'GET').then(
    () => true,
    () => !limit.aborted,
  );
}

/** Thaws the workload of a guest, which need not be frozen. Throws `unavailable` or `failed_precondition`. */
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
    const reason = limit.aborted ? `it took longer than ${limitMs / 1000} s` : messageOf(error);
    throw new EnvdError('unavailable', `the daemon did not answer ${operation}: ${reason}`, { cause: error });
  }
  if (status >= 200 && status < 300) return body;
  throw new Refused(operation, status, body);
}

/** Sends a request and resolves with the head of its response, whose size is limited. */
function responseTo(outgoing: ClientRequest, body: string): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  limitResponse(outgoing, RESPONSE_LIMIT);
  outgoing.once('response', resolve);
  outgoing.on('error', reject);
  // If the response is an upgrade that was not asked for, Node destroys the request and emits no error.
  outgoing.once('close', () => reject(new Error('it closed the connection without a response')));
  outgoing.end(body);
  return promise;
}
