import { hash } from 'node:crypto';

/**
 * Recognizes requests that come back from the sandbox to which they were forwarded (RFC 9110, section 7.6.3). Each sandbox
 * sees another pseudonym of the gateway, which counts only for requests to this sandbox. So no sandbox can get requests to
 * another one refused.
 */
export class Via {
  readonly #key: string;

  /** @param key a secret that all gateways of one registry share */
  constructor(key: string) {
    this.#key = key;
  }

  /** Returns the name of this gateway in requests to a sandbox. */
  pseudonymFor(sandboxId: string): string {
    // A truncated digest allows no length-extension attack.
    return `envd-${hash('sha256', `${this.#key}:${sandboxId}`).slice(0, 32)}`;
  }
}

/** Returns whether a request with this `Via` was forwarded under the pseudonym before. */
export function hasPassed(via: string | undefined, pseudonym: string): boolean {
  return via?.toLowerCase().includes(pseudonym) ?? false;
}
