import type { IncomingMessage } from 'node:http';
import { EnvdError } from '../../base/errors.ts';
import { DAEMON_PORT, SANDBOX_ID } from '../leases/sandbox.ts';
import { readName } from './names.ts';

/** An error quotes so much of the value of a header, in characters. */
const QUOTED = 64;

/** A request addresses this sandbox and port. */
export interface Target {
  readonly id: string;
  /** The port as the client names it. 49983 means the daemon. */
  readonly port: number;
  /** Whether the host names it, rather than headers. */
  readonly isByHost: boolean;
  /** Whether the request may resume the sandbox, if that is paused. */
  readonly wakes: boolean;
}

/** The sandbox and the port of a target, with how they are named. */
type Named = Omit<Target, 'wakes'>;

/** Reads which sandbox and port a request names. It names them by two headers, or by the host if the gateway has a domain. */
export class TargetReader {
  readonly idHeader: string;
  readonly portHeader: string;
  /** With the value `never`, a request does not resume a paused sandbox. */
  readonly wakeHeader: string;
  readonly #domain: string | null;

  /**
   * @param prefix the prefix of both headers, such as `Svc`
   * @param domain the domain of hosts that name sandboxes, or null if no host does
   */
  constructor(prefix: string, domain: string | null) {
    this.idHeader = `${prefix}-Sandbox-Id`;
    this.portHeader = `${prefix}-Sandbox-Port`;
    this.wakeHeader = `${prefix}-Sandbox-Wake`;
    this.#domain = domain;
  }

  /** Names the headers that decide which sandbox answers, for `Vary`. */
  get vary(): string {
    return `${this.idHeader}, ${this.portHeader}, X-API-Key`;
  }

  /**
   * Returns the target, or null if neither headers nor host name a sandbox. Throws `invalid_argument` if one of them is
   * malformed or repeated, if the id is missing, or if they contradict each other.
   */
  read(request: IncomingMessage): Target | null {
    const named = this.#readNamed(request);
    return named && { ...named, wakes: this.#readWakes(request.headersDistinct) };
  }

  #readNamed(request: IncomingMessage): Named | null {
    const named = this.#domain === null ? null : readName(request, this.#domain);
    const ids = request.headersDistinct[this.idHeader.toLowerCase()];
    const ports = request.headersDistinct[this.portHeader.toLowerCase()];
    if (!ids && !ports) return named && { ...named, isByHost: true };
    if (!ids && !named) throw this.missing();
    const id = ids ? this.#readId(ids) : (named?.id ?? '');
    const port = ports ? this.#readPort(ports) : (named?.port ?? DAEMON_PORT);
    if (!named || (named.id === id && named.port === port)) return { id, port, isByHost: false };
    const message = `the host names port ${named.port} of sandbox '${named.id}', but the headers name port ${port} of '${id}'`;
    throw new EnvdError('invalid_argument', message);
  }

  /** Returns the error for a request that names no sandbox. */
  missing(): EnvdError {
    const message =
      this.#domain === null
        ? `header ${this.idHeader} is missing: it names the sandbox`
        : `neither header ${this.idHeader} nor the host, <port>-<id>.${this.#domain}, names a sandbox`;
    return new EnvdError('invalid_argument', message);
  }

  #readWakes({ [this.wakeHeader.toLowerCase()]: values }: IncomingMessage['headersDistinct']): boolean {
    if (!values) return true;
    const value = only(values, this.wakeHeader);
    if (value !== 'never') throw malformed(this.wakeHeader, "'never'", value);
    return false;
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
