import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { messageOf, statusOf } from '../../base/errors.ts';
import type { Keys } from '../access/keys.ts';
import type { Exchanges } from '../proxy/exchanges.ts';
import type { ReverseProxy } from '../proxy/proxy.ts';
import { isInvalidResponse } from '../proxy/response-checks.ts';
import { AccessLog } from './access-log.ts';
import { answerPreflight, isPreflight } from './answers.ts';
import { closeSignal, type Downstream, requestFrom, upgradeFrom } from './downstream.ts';
import { RouteAnswers } from './route-answers.ts';
import {
  isRefusal,
  RESULTS,
  type Refusal,
  type Result,
  type Route,
  type RouteFinder,
} from './route-finder.ts';
import type { Target, TargetReader } from './target.ts';

export interface RouterParts {
  readonly targets: TargetReader;
  readonly finder: RouteFinder;
  readonly proxy: ReverseProxy;
  readonly exchanges: Exchanges;
  /** The most requests that may be in flight to one sandbox. */
  readonly maxRequests: number;
  /** Whether requests to sandboxes need a key, which preflights cannot have. */
  readonly requireKey: boolean;
  /** Removed from requests to sandboxes. */
  readonly keys: Keys;
  /** Answers requests that name no sandbox. */
  readonly platform: (request: IncomingMessage, response: ServerResponse) => void;
  readonly logger: Logger;
}

/**
 * Routes every request. One that names a sandbox is forwarded to it, whatever its path; one that names none is a
 * platform operation. So no path has two meanings.
 */
export class Router {
  readonly counts = Object.fromEntries(RESULTS.map((result) => [result, 0])) as Record<Result, number>;
  readonly #parts: RouterParts;
  readonly #answers: RouteAnswers;
  readonly #log: AccessLog;

  constructor(parts: RouterParts) {
    this.#parts = parts;
    this.#log = new AccessLog(parts.logger);
    this.#answers = new RouteAnswers(parts);
  }

  request(request: IncomingMessage, response: ServerResponse): void {
    if (this.#answers.isFor(request)) {
      void this.#answers.answer(request, response);
      return;
    }
    if (this.#parts.requireKey && isPreflight(request)) {
      answerPreflight(request, response);
      return;
    }
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
      if (target !== null) this.#log.begin(downstream, target);
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
      const to = await this.#find(downstream, target);
      if (isRefusal(to)) {
        this.#refuse(downstream, to.result, to.code, to.message, target.id);
        return;
      }
      if (downstream.stream.destroyed || this.#isBusy(downstream, target)) return;
      this.counts.carried++;
      this.#removeKeys(downstream.request);
      downstream.request.url = to.path;
      exchanges.add(target.id, downstream.stream);
      downstream.forward(proxy, to, (error) => this.#fail(downstream, target, error));
    } catch (error) {
      logger.error({ err: error, sandboxID: target.id }, 'a request could not be routed');
      this.#refuse(downstream, 'failed', 500, messageOf(error), target.id);
    }
  }

  #find({ request, stream }: Downstream, target: Target): Promise<Route | Refusal> {
    const { finder, keys } = this.#parts;
    const { headers, url: path = '' } = request;
    const closed = () => closeSignal(stream);
    return finder.find({ target, path, caller: keys.callerOf(headers), via: headers.via, closed });
  }

  /** Refuses a request beyond the limit: a relay that removes `Via` would use up the gateway. */
  #isBusy(downstream: Downstream, { id }: Target): boolean {
    const { exchanges, maxRequests } = this.#parts;
    if (exchanges.countOf(id) < maxRequests) return false;
    const message = `sandbox '${id}' has ${maxRequests} requests in flight, the most that it may have: try again later`;
    this.#refuse(downstream, 'busy', 503, message, id);
    return true;
  }

  #removeKeys({ headers, headersDistinct }: IncomingMessage): void {
    const shown = headersDistinct['x-api-key'] ?? [];
    if (shown.some((value) => this.#parts.keys.isKey(value))) delete headers['x-api-key'];
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

  #refuse(downstream: Downstream, result: Result, code: number, message: string, sandboxID?: string): void {
    this.counts[result]++;
    downstream.refuse(code, message, sandboxID);
  }
}
