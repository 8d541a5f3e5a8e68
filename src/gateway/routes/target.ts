import type { IncomingMessage } from 'node:http';
import { EnvdError } from '../../base/errors.ts';

/** Where a daemon listens inside its sandbox, as clients see it. */
export const DAEMON_PORT = 49983;

/** What an id looks like: nothing that would need quoting anywhere. */
export const SANDBOX_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** Whom a request is for. */
export interface Target {
  readonly id: string;
  /** The port as the client names it. */
  readonly port: number;
}

/** Reads the two headers by which a request names its sandbox. */
export class TargetReader {
  readonly idHeader: string;
  readonly portHeader: string;

  /** @param prefix what both headers begin with, like `Svc` */
  constructor(prefix: string) {
    this.idHeader = `${prefix}-Sandbox-Id`;
    this.portHeader = `${prefix}-Sandbox-Port`;
  }

  /**
   * Null when a request has neither of them, and so is for the platform. Throws `invalid_argument` naming the header
   * that is missing, malformed or there more than once.
   */
  read({ headersDistinct }: IncomingMessage): Target | null {
    const ids = headersDistinct[this.idHeader.toLowerCase()];
    const ports = headersDistinct[this.portHeader.toLowerCase()];
    if (!ids && !ports) return null;
    if (!ids) throw this.missing();
    return { id: this.#readId(ids), port: ports ? this.#readPort(ports) : DAEMON_PORT };
  }

  missing(): EnvdError {
    return new EnvdError('invalid_argument', `header ${this.idHeader} is missing: it names the sandbox`);
  }

  #readId(values: readonly string[]): string {
    const value = only(values, this.idHeader);
    if (SANDBOX_ID.test(value)) return value;
    throw new EnvdError('invalid_argument', `header ${this.idHeader} is not the id of a sandbox`);
  }

  #readPort(values: readonly string[]): number {
    const value = only(values, this.portHeader);
    const port = Number(value);
    if (/^[1-9]\d{0,4}$/.test(value) && port <= 65535) return port;
    throw new EnvdError(
      'invalid_argument',
      `header ${this.portHeader} must be a whole number from 1 to 65535`,
    );
  }
}

function only(values: readonly string[], header: string): string {
  const [value = '', ...others] = values;
  if (others.length === 0) return value;
  throw new EnvdError('invalid_argument', `header ${header} must be given once`);
}
