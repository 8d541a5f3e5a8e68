import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import { checkAnswer, limitAnswer } from '../proxy/unusable.ts';
import { type Figures, notUnderstood, readFigures, type Shape } from './figures.ts';

/** How long the guest may take to stand still, in ms. */
const FREEZE_WAIT_MS = 5000;
/** A daemon that does not answer within this time is not there, in ms. */
const ANSWER_LIMIT_MS = 15_000;
const COLLAPSE_LIMIT_MS = 60_000;
/** In bytes. A daemon answers with some hundred; whoever is root in a guest may answer in its place. */
const ANSWER_LIMIT = 16 * 1024;
/** What is shown of an answer that refuses. */
const SHOWN = 500;

/** What a freeze tells (`POST /freeze` of the daemon). */
const FREEZE = {
  mode: 'word',
  visited: 'count',
  allowlisted: 'count',
  truncated: 'truth',
  preFrozen: 'count',
  requested: 'count',
  frozen: 'count',
  notFrozen: 'count',
  failed: 'count',
  unobservable: 'count',
  sweepMs: 'count',
  waitMs: 'count',
} as const;

/** What a collapse tells (`POST /collapse`). */
const COLLAPSE = {
  regions: 'count',
  chunks: 'count',
  collapsed: 'count',
  alreadyHuge: 'count',
  skipped: 'count',
  elapsedMs: 'count',
} as const;

/** Figures that must be zero, or something still runs. */
const NOT_STANDING = ['notFrozen', 'failed', 'unobservable'] as const;

/** Stops the workload of a guest and sees that it stands. Throws when it does not, or the guest does not answer. */
export async function freeze(sandbox: Sandbox, signal: AbortSignal): Promise<Figures<typeof FREEZE>> {
  const operation = `/freeze?maxWaitMs=${FREEZE_WAIT_MS}`;
  const figures = await ask(sandbox, operation, FREEZE, ANSWER_LIMIT_MS, signal);
  const missing = NOT_STANDING.find((name) => figures[name] === undefined);
  if (missing !== undefined) throw notUnderstood(operation, `it has no member ${missing}`);
  const running = NOT_STANDING.filter((name) => figures[name] !== 0);
  if (running.length > 0 || figures.truncated === true) {
    throw new EnvdError('failed_precondition', `the guest does not stand still: ${JSON.stringify(figures)}`);
  }
  return figures;
}

/** Makes the memory of a guest's daemon dense. */
export function collapse(sandbox: Sandbox, signal: AbortSignal): Promise<Figures<typeof COLLAPSE>> {
  return ask(sandbox, '/collapse', COLLAPSE, COLLAPSE_LIMIT_MS, signal);
}

/** Lets the workload run again; it is no error when it does already. */
export async function thaw(sandbox: Sandbox, signal?: AbortSignal): Promise<void> {
  await call(sandbox, '/unfreeze', ANSWER_LIMIT_MS, signal);
}

async function ask<S extends Shape>(
  sandbox: Sandbox,
  operation: string,
  shape: S,
  limitMs: number,
  signal: AbortSignal,
): Promise<Figures<S>> {
  return readFigures(operation, await call(sandbox, operation, limitMs, signal), shape);
}

/**
 * What the guest answers with a status 2xx. Throws `unavailable` when it does not answer, within `limitMs` for all of
 * it, and `failed_precondition` when it refuses.
 */
async function call(
  { address, port, accessToken }: Sandbox,
  operation: string,
  limitMs: number,
  signal?: AbortSignal,
): Promise<string> {
  const limit = AbortSignal.timeout(limitMs);
  let status = 0;
  let body = '';
  try {
    const outgoing = request({
      ...{ host: address, port, path: operation, method: 'POST', agent: false },
      headers: { 'content-length': 0, ...(accessToken !== null && { 'x-access-token': accessToken }) },
      signal: signal ? AbortSignal.any([limit, signal]) : limit,
    });
    const answer = await answerTo(outgoing);
    checkAnswer(answer);
    status = answer.statusCode ?? 0;
    body = await text(answer);
  } catch (error) {
    const reason = limit.aborted ? `not within ${limitMs / 1000} s` : messageOf(error);
    throw new EnvdError('unavailable', `${operation} was not answered: ${reason}`, { cause: error });
  }
  if (status >= 200 && status < 300) return body;
  throw new EnvdError(
    'failed_precondition',
    `${operation} was answered with ${status}: ${body.slice(0, SHOWN)}`,
  );
}

/** Sends a request, and resolves with the head of its answer; all of it is bounded. */
function answerTo(outgoing: ClientRequest): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  limitAnswer(outgoing, ANSWER_LIMIT);
  outgoing.once('response', resolve);
  outgoing.on('error', reject);
  // One that is upgraded without being asked to ends without an error.
  outgoing.once('close', () => reject(new Error('the connection was closed')));
  outgoing.end();
  return promise;
}
