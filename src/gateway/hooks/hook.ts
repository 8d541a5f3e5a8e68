import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { expiryId, type Outcome, outcomeOf, type Sandbox } from '../leases/sandbox.ts';
import type { Signer } from './signer.ts';

/** How much of the body of a refusal is read and quoted, in bytes. */
const QUOTED = 500;
/** The most bytes of an answer to `create`. */
export const ANSWER_LIMIT = 16 * 1024;

/** Why a hook is called: a sandbox has expired or is to be paused, is to be removed, is needed again, or is to be made. */
export type HookEvent = 'expire' | 'kill' | 'resume' | 'create';

/** The operator's way to make, pause, remove or resume the machine of a sandbox. */
export interface Hook {
  /**
   * Returns what the hook answers to `create`, and an empty text for other events. Throws when the hook failed. `signal` ends the wait,
   * not the hook.
   */
  run(request: HookRequest, signal: AbortSignal): Promise<string>;
}

/** The hooks of a gateway; null: not configured. */
export interface Hooks {
  readonly expire: Hook | null;
  readonly kill: Hook | null;
  readonly resume: Hook | null;
  readonly create: Hook | null;
}

/** The JSON that a hook gets. */
export interface HookRequest {
  readonly event: HookEvent;
  /** The same for every call of one attempt, so that a receiver can recognize repetitions. */
  readonly expiryID: string;
  readonly sandboxID: string;
  /** What is to be done. */
  readonly outcome: Outcome | 'resume' | 'create';
  readonly [more: string]: unknown;
}

/** The JSON of a hook that makes a machine. `asked` is what the client has sent, without its variables. */
export function createRequest(sandbox: Sandbox, seconds: number, asked: object): HookRequest {
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
    metadata,
    request: asked,
  };
}

export function hookRequest(event: Exclude<HookEvent, 'create'>, sandbox: Sandbox) {
  const { id, address, port, metadata, deadline, failures, observed } = sandbox;
  return {
    event,
    expiryID: expiryId(sandbox),
    sandboxID: id,
    outcome: wantedOutcome(event, sandbox),
    attempt: failures + 1,
    endAt: new Date(deadline).toISOString(),
    address,
    port,
    metadata,
    freeze: observed?.freeze ?? null,
    collapse: observed?.collapse ?? null,
  };
}

function wantedOutcome(event: HookEvent, sandbox: Sandbox): Outcome | 'resume' {
  if (event === 'resume') return 'resume';
  return event === 'kill' ? 'remove' : outcomeOf(sandbox);
}

/** A hook behind a URL. It may be called twice for one attempt, with the same `Idempotency-Key`. */
export class UrlHook implements Hook {
  readonly #url: string;
  readonly #limitMs: number;
  readonly #signer: Signer;

  constructor(url: string, limitMs: number, signer: Signer) {
    this.#url = url;
    this.#limitMs = limitMs;
    this.#signer = signer;
  }

  /** A request whose response was lost is sent once more: otherwise nobody knows what became of the machine. */
  async run(request: HookRequest, signal: AbortSignal): Promise<string> {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(this.#limitMs)]);
    const response = await this.#post(request, limited)
      .catch((error: unknown) => (limited.aborted ? Promise.reject(error) : this.#post(request, limited)))
      .catch((error: unknown) => {
        throw new EnvdError('unavailable', `the hook did not answer: ${messageOf(error)}`, { cause: error });
      });
    const { statusCode: status = 0 } = response;
    const isDone = status >= 200 && status < 300;
    const isRead = !isDone || request.event === 'create';
    const text = isRead ? await beginning(response, isDone ? ANSWER_LIMIT : QUOTED).catch(() => '') : '';
    response.destroy();
    if (isDone) return text;
    throw new EnvdError('failed_precondition', `the hook answered ${status}: ${text}`);
  }

  /** Sends without `fetch`, because that gives up after 300 s, though the hook still runs. */
  async #post(request: HookRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const body = JSON.stringify(request);
    const send = this.#url.startsWith('https:') ? httpsRequest : httpRequest;
    const outgoing = send(this.#url, {
      method: 'POST',
      agent: false,
      headers: {
        'content-type': 'application/json',
        // A server may refuse whatever follows a request that ends its connection, also before it has answered that one.
        connection: 'keep-alive',
        'content-length': Buffer.byteLength(body),
        'idempotency-key': request.expiryID,
        ...this.#signer.headersFor(request.expiryID, body),
      },
      signal,
    });
    // The connection may also fail behind the answer, when nobody waits for it any more.
    outgoing.on('error', () => {});
    const answered = once(outgoing, 'response', { signal });
    outgoing.end(body);
    const [response] = (await answered) as [IncomingMessage];
    return response.on('error', () => {});
  }
}

/** Reads the part of a body that is quoted, and cancels the rest. */
async function beginning(body: AsyncIterable<Uint8Array>, limit: number): Promise<string> {
  let bytes = Buffer.alloc(0);
  for await (const piece of body) {
    bytes = Buffer.concat([bytes, piece]);
    if (bytes.length >= limit) break;
  }
  return bytes.subarray(0, limit).toString();
}
