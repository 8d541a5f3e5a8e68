import type { IncomingMessage } from 'node:http';
import { EnvdError } from '../../base/errors.ts';
import { DAEMON_PORT } from '../leases/sandbox.ts';
import { readName } from './names.ts';

/** An id that needs no quoting in a URL, a header or a file name. */
export const SANDBOX_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** The most of a header's value that an error quotes, in characters. */
const QUOTED = 64;

/** What a request addresses. */
export interface Target {
  readonly id: string;
  /** As the client names it: 49983 means the daemon. */
  readonly port: number;
  /** Whether the host names it, rather than headers. */
  readonly isByHost: boolean;
}

/** Reads which sandbox and port a request names: by two headers, or by the host where the gateway has a domain. */
export class TargetReader {
  readonly idHeader: string;
  readonly portHeader: string;
  readonly #domain: string | null;

  /**
   * @param prefix the prefix of both headers, such as `Svc`
   * @param domain the domain of hosts that name sandboxes; null: hosts name none
   */
  constructor(prefix: string, domain: string | null) {
    this.idHeader = `${prefix}-Sandbox-Id`;
    this.portHeader = `${prefix}-Sandbox-Port`;
    this.#domain = domain;
  }

  /** The headers that decide which sandbox answers, for `Vary`. */
  get vary(): string {
    return `${this.idHeader}, ${this.portHeader}, X-API-Key`;
  }

  /**
   * Returns null when neither headers nor host name a sandbox. Throws `invalid_argument` when one of them is malformed
   * or repeated, the id is missing, or they contradict each other.
   * @param hostHeader where the host is, in lower case
   */
  read(request: IncomingMessage, hostHeader = 'host'): Target | null {
    const named = this.#domain === null ? null : readName(request, this.#domain, hostHeader);
    const ids = request.headersDistinct[this.idHeader.toLowerCase()];
    const ports = request.headersDistinct[this.portHeader.toLowerCase()];
    if (!ids && !ports) return named && { ...named, isByHost: true };
    if (!ids && !named) throw this.missing();
    const id = ids ? this.#readId(ids) : (named?.id ?? '');
    const port = ports ? this.#readPort(ports) : (named?.port ?? DAEMON_PORT);
    if (!named || (named.id === id && named.port === port)) return { id, port, isByHost: false };
    const message = `the host names port ${named.port} of sandbox '${named.id}', the headers port ${port} of '${id}'`;
    throw new EnvdError('invalid_argument', message);
  }

  missing(): EnvdError {
    const message =
      this.#domain === null
        ? `header ${this.idHeader} is missing: it names the sandbox`
        : `neither header ${this.idHeader} nor the host, <port>-<id>.${this.#domain}, names a sandbox`;
    return new EnvdError('invalid_argument', message);
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
