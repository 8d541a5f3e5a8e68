import { EnvdError, messageOf } from '../../base/errors.ts';
import { expiryId, type Sandbox } from '../leases/sandbox.ts';

/** How much of the body of a refusal is read and quoted, in bytes. */
const QUOTED = 500;

/** Pauses or removes the machine of a sandbox that has expired, for the operator. */
export interface Hook {
  /** Throws when that failed. `signal` ends the waiting, not the hook. */
  run(request: HookRequest, signal: AbortSignal): Promise<void>;
}

/** The JSON that a hook gets. */
export type HookRequest = ReturnType<typeof hookRequest>;

export function hookRequest(sandbox: Sandbox) {
  const { id, onExpiry, address, port, metadata, deadline, failures, observed } = sandbox;
  return {
    /** The same each time one expiry is told, so that a receiver can recognise repetitions. */
    expiryID: expiryId(sandbox),
    sandboxID: id,
    outcome: onExpiry,
    attempt: failures + 1,
    endAt: new Date(deadline).toISOString(),
    ...{ address, port, metadata },
    freeze: observed?.freeze ?? null,
    collapse: observed?.collapse ?? null,
  };
}

/** Does nothing: for gateways without a hook. */
export const NO_HOOK: Hook = { run: async () => {} };

/** A hook behind a URL. It may be called twice for one expiry, with the same `Idempotency-Key`. */
export class UrlHook implements Hook {
  readonly #url: string;
  readonly #limitMs: number;

  constructor(url: string, limitMs: number) {
    this.#url = url;
    this.#limitMs = limitMs;
  }

  async run(request: HookRequest, signal: AbortSignal): Promise<void> {
    const response = await fetch(this.#url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': request.expiryID },
      body: JSON.stringify(request),
      signal: AbortSignal.any([signal, AbortSignal.timeout(this.#limitMs)]),
      redirect: 'error',
    }).catch((error: unknown) => {
      throw new EnvdError('unavailable', `the hook did not answer: ${messageOf(error)}`, { cause: error });
    });
    if (response.ok) return await response.body?.cancel().catch(() => {});
    const text = response.body ? await beginning(response.body) : '';
    throw new EnvdError('failed_precondition', `the hook answered ${response.status}: ${text}`);
  }
}

/** Reads what is quoted of a body, and cancels the rest. */
async function beginning(body: AsyncIterable<Uint8Array>): Promise<string> {
  let bytes = Buffer.alloc(0);
  for await (const piece of body) {
    bytes = Buffer.concat([bytes, piece]);
    if (bytes.length >= QUOTED) break;
  }
  return bytes.subarray(0, QUOTED).toString();
}
