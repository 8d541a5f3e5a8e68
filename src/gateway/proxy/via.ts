import { hash } from 'node:crypto';

/**
 * Recognises requests that come back from the sandbox which they were forwarded to (RFC 9110, section 7.6.3). Each sandbox
 * sees another pseudonym of the gateway, which counts for requests to this sandbox alone: so no sandbox knows a name that
 * would have a request to another one refused.
 */
export class Via {
  readonly #key: string;

  /** @param key shared by the gateways of one registry, and secret */
  constructor(key: string) {
    this.#key = key;
  }

  /** The name of this gateway in requests to a sandbox. */
  pseudonymFor(sandboxId: string): string {
    // In one call, without an object for the garbage collector. Cut to half, a digest cannot be extended.
    return `envd-${hash('sha256', `${this.#key}:${sandboxId}`).slice(0, 32)}`;
  }
}

/** Whether a request with this `Via` has been forwarded under the pseudonym before. */
export function hasPassed(via: string | undefined, pseudonym: string): boolean {
  return via?.toLowerCase().includes(pseudonym) ?? false;
}
