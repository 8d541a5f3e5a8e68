import { createHmac } from 'node:crypto';

/** A secret as Standard Webhooks writes it: 24 to 64 bytes in base64. */
const SECRET = /^whsec_([A-Za-z0-9+/]{32,88}={0,2})$/;

/** The key of a secret; null when malformed. */
export function readSecret(text: string): Buffer | null {
  const key = Buffer.from(SECRET.exec(text)?.[1] ?? '', 'base64');
  return key.length >= 24 && key.length <= 64 ? key : null;
}

/**
 * Signs requests to hooks as Standard Webhooks specifies (github.com/standard-webhooks/standard-webhooks); most
 * languages have libraries for receivers.
 */
export class Signer {
  readonly #keys: readonly Buffer[];

  /** @param keys several during a rotation: receivers accept a signature by any of them */
  constructor(keys: readonly Buffer[]) {
    this.#keys = keys;
  }

  /** The headers for a body that is sent now; none without a key. */
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
