import { createHmac } from 'node:crypto';

/** A secret as Standard Webhooks writes it: 24 to 64 bytes in base64. */
const SECRET = /^whsec_([A-Za-z0-9+/]{32,88}={0,2})$/;

/** The key of a secret; null for what is none. */
export function readSecret(text: string): Buffer | null {
  const key = Buffer.from(SECRET.exec(text)?.[1] ?? '', 'base64');
  return key.length >= 24 && key.length <= 64 ? key : null;
}

/**
 * Signs the requests of hooks as Standard Webhooks says (github.com/standard-webhooks/standard-webhooks), for whose
 * receivers there are libraries in most languages.
 */
export class Signer {
  readonly #keys: readonly Buffer[];

  /** @param keys several while they are rotated: a receiver accepts the signature by any of them */
  constructor(keys: readonly Buffer[]) {
    this.#keys = keys;
  }

  /** The headers for a body that is sent now; without a key none. */
  headersFor(id: string, body: string): Readonly<Record<string, string>> {
    if (this.#keys.length === 0) return {};
    const timestamp = String(Math.floor(Date.now() / 1000));
    const signed = `${id}.${timestamp}.${body}`;
    const signatures = this.#keys.map(
      (key) => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`,
    );
    return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures.join(' ') };
  }
}
