import { createHmac } from 'node:crypto';

/** Standard Webhooks writes a secret as `whsec_` and 24 to 64 bytes in base64. */
const SECRET = /^whsec_([A-Za-z0-9+/]{32,88}={0,2})$/;

/** Returns the bytes of a secret, or null if the text is malformed. */
export function readSecret(text: string): Buffer | null {
  const key = Buffer.from(SECRET.exec(text)?.[1] ?? '', 'base64');
  return key.length >= 24 && key.length <= 64 ? key : null;
}

/**
 * Signs requests to hooks as Standard Webhooks specifies (github.com/standard-webhooks/standard-webhooks), because receivers in
 * most languages have a library for that.
 */
export class Signer {
  readonly #keys: readonly Buffer[];

  /** @param keys during a rotation there are several, because receivers accept a signature by any of them */
  constructor(keys: readonly Buffer[]) {
    this.#keys = keys;
  }

  /** Returns the headers for a body that is sent now, or none if there is no key. */
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
