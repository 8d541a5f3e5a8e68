import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { messageOf, statusOf } from '../../base/errors.ts';
import { equalSecrets } from '../../base/secrets.ts';
import { isReachable, type Sandbox } from '../leases/sandbox.ts';
import type { Exchanges } from '../proxy/exchanges.ts';
import type { ReverseProxy, Upstream } from '../proxy/proxy.ts';
import { isInvalidResponse } from '../proxy/response-checks.ts';
import { hasPassed, type Via } from '../proxy/via.ts';
import type { Registry } from '../registry/registry.ts';
import { answerPreflight, isPreflight } from './answers.ts';
import { closedOperation, originForm } from './closed-paths.ts';
import { type Downstream, requestFrom, upgradeFrom } from './downstream.ts';
import { DAEMON_PORT, type Target, type TargetReader } from './target.ts';

export interface RouterParts {
  readonly targets: TargetReader;
  readonly registry: Registry;
  readonly proxy: ReverseProxy;
  readonly exchanges: Exchanges;
  readonly via: Via;
  /** The most requests that may be in flight to one sandbox. */
  readonly maxRequests: number;
  /** Removed from requests to sandboxes. */
  readonly apiKey: string;
  /** Answers requests that name no sandbox. */
  readonly platform: (request: IncomingMessage, response: ServerResponse) => void;
  readonly logger: Logger;
}

/** What became of requests for sandboxes: the labels of a metric. */
export const RESULTS = [
  'carried',
  'malformed',
  'looped',
  'closed',
  'unknown',
  'expired',
  'busy',
  'failed',
] as const;
export type Result = (typeof RESULTS)[number];

/**
 * Routes every request. One that names a sandbox is forwarded to it, whatever its path; one that names none is a
 * platform operation. So no path has two meanings.
 */
export class Router {
  readonly counts = Object.fromEntries(RESULTS.map((result) => [result, 0])) as Record<Result, number>;
  readonly #parts: RouterParts;

  constructor(parts: RouterParts) {
    this.#parts = parts;
  }

  request(request: IncomingMessage, response: ServerResponse): void {
    this.#route(requestFrom(request, response), () => {
      if (isPreflight(request)) answerPreflight(request, response);
      else this.#parts.platform(request, response);
    });
  }

  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const downstream = upgradeFrom(request, socket, head);
    if (!downstream) return;
    this.#route(downstream, () => {
      this.#refuse(downstream, 'malformed', 400, this.#parts.targets.missing().message);
    });
  }

  /** @param otherwise called when the request names no sandbox */
  #route(downstream: Downstream, otherwise: () => void): void {
    try {
      const target = this.#readTarget(downstream);
      if (target) void this.#forward(downstream, target);
      else if (target === null) otherwise();
    } catch (error) {
      this.#parts.logger.error({ err: error }, 'a request could not be answered');
      this.#refuse(downstream, 'failed', 500, messageOf(error));
    }
  }

  /** Null: the request names no sandbox. Undefined: it was refused. */
  #readTarget(downstream: Downstream): Target | null | undefined {
    try {
      return this.#parts.targets.read(downstream.request);
    } catch (error) {
      this.#refuse(downstream, 'malformed', statusOf(error), messageOf(error));
      return undefined;
    }
  }

  async #forward(downstream: Downstream, target: Target): Promise<void> {
    const { proxy, exchanges, logger } = this.#parts;
    try {
      const to = await this.#upstream(downstream, target);
      if (!to || downstream.stream.destroyed || this.#isBusy(downstream, target)) return;
      this.counts.carried++;
      this.#removeApiKey(downstream.request);
      exchanges.add(target.id, downstream.stream);
      downstream.forward(proxy, to, (error) => this.#fail(downstream, target, error));
    } catch (error) {
      logger.error({ err: error, sandboxID: target.id }, 'a request could not be routed');
      this.#refuse(downstream, 'failed', 500, messageOf(error), target.id);
    }
  }

  /** Null: the request was refused. */
  async #upstream(downstream: Downstream, { id, port }: Target): Promise<Upstream | null> {
    const target = downstream.request.url ?? '';
    const path = originForm(target);
    if (path === null) {
      const message = `the request target must be a path or an http URL, not '${target}'`;
      return this.#refuse(downstream, 'malformed', 400, message, id);
    }
    downstream.request.url = path;
    const pseudonym = this.#parts.via.pseudonymFor(id);
    if (hasPassed(downstream.request, pseudonym)) {
      const message = `the gateway has forwarded this request to sandbox '${id}' before: it came back with its Via header`;
      return this.#refuse(downstream, 'looped', 508, message, id);
    }
    const { sandbox, now } = await this.#parts.registry.find(id);
    if (!sandbox || !isReachable(sandbox, now)) {
      const result = sandbox ? 'expired' : 'unknown';
      return this.#refuse(downstream, result, 502, describeAbsence(id, sandbox), id);
    }
    const actualPort = port === DAEMON_PORT ? sandbox.port : port;
    const closed = actualPort === sandbox.port ? closedOperation(path) : null;
    if (closed !== null)
      return this.#refuse(downstream, 'closed', 403, `${closed} is not open to clients`, id);
    return { sandboxId: id, address: sandbox.address, port: actualPort, pseudonym };
  }

  /** Refuses a request beyond the limit: a relay that removes `Via` would use up the gateway. */
  #isBusy(downstream: Downstream, { id }: Target): boolean {
    const { exchanges, maxRequests } = this.#parts;
    if (exchanges.countOf(id) < maxRequests) return false;
    const message = `sandbox '${id}' has ${maxRequests} requests in flight, the most that it may have: try again later`;
    this.#refuse(downstream, 'busy', 503, message, id);
    return true;
  }

  #removeApiKey({ headers, headersDistinct }: IncomingMessage): void {
    const shown = headersDistinct['x-api-key'] ?? [];
    if (shown.some((value) => equalSecrets(value, this.#parts.apiKey))) delete headers['x-api-key'];
  }

  #fail(downstream: Downstream, { id, port }: Target, error: Error): void {
    if (downstream.stream.destroyed || downstream.stream.writableFinished) return;
    const invalid = isInvalidResponse(error);
    const reason = !invalid && 'code' in error ? String(error.code) : error.message;
    const message = invalid
      ? `the response of sandbox '${id}' on port ${port} is invalid: ${reason}`
      : `sandbox '${id}' cannot be reached on port ${port}: ${reason}`;
    const event = invalid ? 'a response is invalid' : 'a sandbox cannot be reached';
    this.#parts.logger.info({ sandboxID: id, port, reason }, event);
    this.#refuse(downstream, 'failed', 502, message, id);
  }

  #refuse(downstream: Downstream, result: Result, code: number, message: string, sandboxID?: string): null {
    this.counts[result]++;
    downstream.refuse(code, message, sandboxID);
    return null;
  }
}

function describeAbsence(id: string, sandbox: Sandbox | null): string {
  if (!sandbox) return `sandbox '${id}' is not known`;
  return sandbox.phase === 'paused' ? `sandbox '${id}' is paused` : `sandbox '${id}' has expired`;
}
