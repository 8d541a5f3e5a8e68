import { EnvdError, messageOf } from '../../base/errors.ts';
import type { Hook, HookRequest } from './hook.ts';

/** What is read of an answer that refuses, in bytes. */
const SHOWN = 500;

/** A hook behind a URL. It is told again, with the same key, when it is not known whether it has heard. */
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

/** Reads what is shown of a body, and breaks it off. */
async function beginning(body: AsyncIterable<Uint8Array>): Promise<string> {
  let bytes = Buffer.alloc(0);
  for await (const piece of body) {
    bytes = Buffer.concat([bytes, piece]);
    if (bytes.length >= SHOWN) break;
  }
  return bytes.subarray(0, SHOWN).toString();
}
