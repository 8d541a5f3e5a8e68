import type { IncomingMessage } from 'node:http';
import { EnvdError } from '../../base/errors.ts';

/** The port by which clients address the daemon of any sandbox. */
export const DAEMON_PORT = 49983;

/** An id that needs no quoting in a URL, a header or a file name. */
export const SANDBOX_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** The most of a header's value that an error quotes, in characters. */
const QUOTED = 64;

/** What a request addresses. */
export interface Target {
  readonly id: string;
  /** As the client names it: 49983 for the daemon. */
  readonly port: number;
}

/** Reads the two headers that name a sandbox and a port in it. */
export class TargetReader {
  readonly idHeader: string;
  readonly portHeader: string;

  /** @param prefix of both headers, such as `Svc` */
  constructor(prefix: string) {
    this.idHeader = `${prefix}-Sandbox-Id`;
    this.portHeader = `${prefix}-Sandbox-Port`;
  }

  /**
   * Returns null when the request has neither header. Throws `invalid_argument` when one is malformed or repeated, or
   * the id is missing.
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
    const wanted = "the id of a sandbox (1 to 128 letters, digits, '.', '_', '-')";
    throw malformed(this.idHeader, wanted, value);
  }

  #readPort(values: readonly string[]): number {
    const value = only(values, this.portHeader);
    const port = Number(value);
    if (/^[1-9]\d{0,4}$/.test(value) && port <= 65535) return port;
    throw malformed(this.portHeader, 'a whole number from 1 to 65535', value);
  }
}

function only(values: readonly string[], header: string): string {
  const [value = '', ...others] = values;
  if (others.length === 0) return value;
  throw new EnvdError('invalid_argument', `header ${header} must be given once, not ${values.length} times`);
}

function malformed(header: string, wanted: string, value: string): EnvdError {
  const quoted = value.length > QUOTED ? `${value.slice(0, QUOTED)}…` : value;
  return new EnvdError('invalid_argument', `header ${header} must be ${wanted}, not '${quoted}'`);
}
