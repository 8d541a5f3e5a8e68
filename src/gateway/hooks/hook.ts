import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { OwnerQuota } from '../access/quotas.ts';
import { expiryId, keepsMemory, type Outcome, outcomeOf, type Sandbox } from '../leases/sandbox.ts';
import type { Signer } from './signer.ts';

/** An error quotes this much of the body of a refusal, in bytes; the rest is not read. */
const QUOTED = 500;
/** A late answer of a URL is waited for until its time limit has passed this many times. */
const LATE_TIMES = 10;
/** An answer that describes a machine may have this many bytes. */
export const ANSWER_LIMIT = 16 * 1024;

/**
 * The reason for a call of a hook: a sandbox has expired or must be paused (`expire`), must be removed, is needed again, or
 * must be made.
 */
export type HookEvent = 'expire' | 'kill' | 'resume' | 'create';

/** Makes, pauses, removes or resumes the machine of a sandbox, in a way that the operator has configured. */
export interface Hook {
  /**
   * Returns the answer of the hook to an event that makes a machine, and an empty text for others. Throws `failed_precondition` when the hook
   * failed, and `unavailable` when it did not answer. `signal` ends the wait, not the hook. Calls `onLate` when the hook has not
   * ended within its time and cannot be ended, so that its answer is still waited for.
   */
  run(request: HookRequest, signal: AbortSignal, onLate?: () => void): Promise<string>;
  /** Must be called when the success of an attempt is recorded, so that no gateway calls the hook for it again. */
  forget(expiryID: string): void;
}

/** The hooks of a gateway. A hook that is not configured is null. */
export interface Hooks {
  readonly expire: Hook | null;
  readonly kill: Hook | null;
  readonly resume: Hook | null;
  readonly create: Hook | null;
}

/** A hook gets this as JSON (docs/gateway.md). */
export interface HookRequest {
  readonly event: HookEvent;
  /** All calls of one attempt have the same id, so that a receiver can recognize repetitions. */
  readonly expiryID: string;
  readonly sandboxID: string;
  /** The hook must bring the machine into this state. */
  readonly outcome: Outcome | 'resume' | 'create';
  /** The pause keeps the disk alone; the resume makes a new machine with it. */
  readonly memory?: false;
  readonly [more: string]: unknown;
}

/** The wishes of a client for a machine, and the limits of the platform, as a hook gets them. */
export interface WantedOfHook {
  readonly seconds: number;
  /** The body of the client without its variables, which are secrets. */
  readonly asked: object;
  /** The owner may have this, and the machine may be as large as this. */
  readonly quota: OwnerQuota;
}

/** Returns the request to a hook that makes a machine, on none of the hosts that are `drained`. */
export function createRequest(
  sandbox: Sandbox,
  { seconds, asked, quota: { cpu, memory } }: WantedOfHook,
  drained: ReadonlySet<string>,
): HookRequest {
  const { id, templateID, metadata, owner } = sandbox;
  return {
    event: 'create',
    expiryID: expiryId(sandbox),
    sandboxID: id,
    outcome: 'create',
    attempt: 1,
    templateID,
    timeout: seconds,
    owner,
    quota: { cpu: cpu ?? null, memory: memory ?? null },
    drainedHosts: [...drained],
    metadata,
    request: asked,
  };
}

/** Returns the request to a hook that pauses, removes or resumes a machine; it resumes none on the hosts that are `drained`. */
export function hookRequest(
  event: Exclude<HookEvent, 'create'>,
  sandbox: Sandbox,
  drained: ReadonlySet<string> | null = null,
) {
  const { id, address, port, owner, host, metadata, deadline, failures, observed } = sandbox;
  const outcome = wantedOutcome(event, sandbox);
  return {
    event,
    expiryID: expiryId(sandbox),
    sandboxID: id,
    outcome,
    ...(outcome !== 'remove' && !keepsMemory(sandbox) && ({ memory: false } as const)),
    attempt: failures + 1,
    endAt: new Date(deadline).toISOString(),
    address,
    port,
    owner: owner ?? null,
    ...(host !== undefined && { host }),
    ...(drained && { drainedHosts: [...drained] }),
    metadata,
    freeze: observed?.freeze ?? null,
    collapse: observed?.collapse ?? null,
  };
}

/** Returns whether the answer to a request describes a machine. */
export function makesMachine({ event, memory }: HookRequest): boolean {
  return event === 'create' || (event === 'resume' && memory === false);
}

/** The log has this message when a hook is late. */
export const LATE_HOOK =
  'a hook has not ended within --hook-timeout: the gateway waits for its answer, which decides what follows';

/** Returns the error for an event that needs a hook which is not configured. */
export function missingHook(event: HookEvent): EnvdError {
  const flag = event === 'expire' ? '--hook' : `--${event}-hook`;
  return new EnvdError('unimplemented', `no hook can ${event} the sandbox: set ${flag}`);
}

function wantedOutcome(event: HookEvent, sandbox: Sandbox): Outcome | 'resume' {
  if (event === 'resume') return 'resume';
  return event === 'kill' ? 'remove' : outcomeOf(sandbox);
}

/** A hook at a URL. It may be called twice for one attempt, with the same `Idempotency-Key`. */
export class UrlHook implements Hook {
  readonly #url: string;
  readonly #limitMs: number;
  readonly #signer: Signer;

  constructor(url: string, limitMs: number, signer: Signer) {
    this.#url = url;
    this.#limitMs = limitMs;
    this.#signer = signer;
  }

  /**
   * Sends a request a second time if its response was lost, because only the hook knows what happened to the machine. For the
   * same reason a late answer is waited for.
   */
  async run(request: HookRequest, signal: AbortSignal, onLate = () => {}): Promise<string> {
    const late = setTimeout(onLate, this.#limitMs);
    return this.#run(request, signal).finally(() => clearTimeout(late));
  }

  async #run(request: HookRequest, signal: AbortSignal): Promise<string> {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(LATE_TIMES * this.#limitMs)]);
    const response = await this.#post(request, limited)
      .catch((error: unknown) => (limited.aborted ? Promise.reject(error) : this.#post(request, limited)))
      .catch((error: unknown) => {
        throw new EnvdError('unavailable', `the hook did not answer: ${messageOf(error)}`, { cause: error });
      });
    const { statusCode: status = 0 } = response;
    const isDone = status >= 200 && status < 300;
    const isRead = !isDone || makesMachine(request);
    const text = isRead ? await beginning(response, isDone ? ANSWER_LIMIT : QUOTED).catch(() => '') : '';
    response.destroy();
    if (isDone) return text;
    if (status === 501) throw new EnvdError('unimplemented', sentenceIn(text));
    throw new EnvdError('failed_precondition', `the hook answered ${status}: ${text}`);
  }

  /** The receiver decides how long it remembers an attempt. */
  forget(): void {}

  /** Does not use `fetch`, which gives up after 300 s although the hook may run for longer. */
  async #post(request: HookRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const body = JSON.stringify(request);
    const send = this.#url.startsWith('https:') ? httpsRequest : httpRequest;
    const outgoing = send(this.#url, {
      method: 'POST',
      agent: false,
      headers: {
        'content-type': 'application/json',
        // With `close`, some servers refuse data that follows the request, even before they have answered it.
        connection: 'keep-alive',
        'content-length': Buffer.byteLength(body),
        'idempotency-key': request.expiryID,
        ...this.#signer.headersFor(request.expiryID, body),
      },
      signal,
    });
    const { promise: answered, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    outgoing.once('response', resolve);
    // The connection may also fail after the answer. Without a listener that error would be uncaught.
    outgoing.on('error', reject);
    // If the answer is an upgrade that was not asked for, Node closes the connection and emits no error.
    outgoing.once('close', () => reject(new Error('it closed the connection')));
    outgoing.end(body);
    const response = await answered;
    return response.on('error', () => {});
  }
}

/** Returns the `message` of a JSON object, or other text as it is. */
function sentenceIn(text: string): string {
  try {
    const { message } = Object(JSON.parse(text)) as { readonly message?: unknown };
    if (typeof message === 'string') return message;
  } catch {
    // It is no JSON.
  }
  return text;
}

/** Returns the first `limit` bytes of a body as text, and cancels the rest. */
async function beginning(body: AsyncIterable<Uint8Array>, limit: number): Promise<string> {
  let bytes = Buffer.alloc(0);
  for await (const piece of body) {
    bytes = Buffer.concat([bytes, piece]);
    if (bytes.length >= limit) break;
  }
  return bytes.subarray(0, limit).toString();
}
