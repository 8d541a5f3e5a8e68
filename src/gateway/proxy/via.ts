import { hash } from 'node:crypto';

/**
 * Recognises requests that come back from the sandbox they were forwarded to (RFC 9110, section 7.6.3). Each sandbox
 * sees a different pseudonym of the gateway, which counts only for requests to that sandbox: no sandbox knows a name
 * that would get requests to another one refused.
 */
export class Via {
  readonly #key: string;

  /** @param key shared by the gateways of one registry, and secret */
  constructor(key: string) {
    this.#key = key;
  }

  /** The name of this gateway in requests to a sandbox. */
  pseudonymFor(sandboxId: string): string {
    // A truncated digest allows no length-extension attack.
    return `envd-${hash('sha256', `${this.#key}:${sandboxId}`).slice(0, 32)}`;
  }
}

/** Whether a request with this `Via` was forwarded under the pseudonym before. */
export function hasPassed(via: string | undefined, pseudonym: string): boolean {
  return via?.toLowerCase().includes(pseudonym) ?? false;
}
