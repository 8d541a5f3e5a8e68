import { EnvdError } from '../../base/errors.ts';
import type { Sandbox } from '../leases/sandbox.ts';

/** How long the guest may take to stand still, in ms. */
const FREEZE_WAIT_MS = 5000;
/** A daemon that does not answer within this time is not there, in ms. */
const ANSWER_LIMIT_MS = 15_000;
const COLLAPSE_LIMIT_MS = 60_000;

/** What a freeze tells, as far as it is judged. */
interface FreezeFigures extends Readonly<Record<string, unknown>> {
  readonly requested: number;
  readonly frozen: number;
}

/** Figures that must be zero, or something still runs. */
const NOT_STANDING = ['notFrozen', 'failed', 'unobservable'] as const;

/** Stops the workload of a guest and sees that it stands. Throws when it does not, or the guest does not answer. */
export async function freeze(sandbox: Sandbox, signal: AbortSignal): Promise<FreezeFigures> {
  const operation = `/freeze?maxWaitMs=${FREEZE_WAIT_MS}`;
  const figures = (await call(sandbox, operation, ANSWER_LIMIT_MS, signal)) as FreezeFigures;
  const running = NOT_STANDING.filter((name) => figures[name] !== 0);
  if (running.length > 0 || figures.truncated === true) {
    throw new EnvdError('failed_precondition', `the guest does not stand still: ${JSON.stringify(figures)}`);
  }
  return figures;
}

/** Makes the memory of a guest's daemon dense. */
export function collapse(sandbox: Sandbox, signal: AbortSignal): Promise<Readonly<Record<string, unknown>>> {
  return call(sandbox, '/collapse', COLLAPSE_LIMIT_MS, signal);
}

/** Lets the workload run again; it is no error when it does already. */
export async function thaw(sandbox: Sandbox, signal?: AbortSignal): Promise<void> {
  await call(sandbox, '/unfreeze', ANSWER_LIMIT_MS, signal);
}

async function call(
  { address, port, accessToken }: Sandbox,
  operation: string,
  limitMs: number,
  signal?: AbortSignal,
): Promise<Readonly<Record<string, unknown>>> {
  const host = address.includes(':') ? `[${address}]` : address;
  const limit = AbortSignal.timeout(limitMs);
  const response = await fetch(`http://${host}:${port}${operation}`, {
    method: 'POST',
    headers: accessToken === null ? {} : { 'x-access-token': accessToken },
    signal: signal ? AbortSignal.any([limit, signal]) : limit,
    redirect: 'error',
  }).catch((error: unknown) => {
    throw new EnvdError('unavailable', `${operation} was not answered: ${reasonOf(error)}`, { cause: error });
  });
  const text = await response.text();
  if (!response.ok)
    throw new EnvdError('failed_precondition', `${operation} answered ${response.status}: ${text}`);
  return text === '' ? {} : JSON.parse(text);
}

/** The cause says what has happened, the error itself only that something has. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}
