import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import type { Logger } from 'pino';
import { httpStatusOf, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Forwarded } from '../access/forwarded.ts';
import type { InFlight } from '../access/in-flight.ts';
import type { Caller, Keys } from '../access/keys.ts';
import type { Previews } from '../access/previews.ts';
import type { Exchanges } from '../proxy/exchanges.ts';
import type { ReverseProxy } from '../proxy/proxy.ts';
import { isInvalidResponse } from '../proxy/response-checks.ts';
import type { StaleConnections } from '../proxy/stale-connections.ts';
import { AccessLog } from './access-log.ts';
import { answerPreflight, isPreflight, NO_TRACE, type RefusalAnswer } from './answers.ts';
import { type Decision, isRefusal, RESULTS, type Result } from './decisions.ts';
import { closeSignal, type Downstream, requestFrom, upgradeFrom } from './downstream.ts';
import type { RequestTimes } from './request-times.ts';
import type { RouteFinder } from './route-finder.ts';
import type { Target, TargetReader } from './target.ts';

export interface RouterParts {
  readonly targets: TargetReader;
  readonly previews: Previews;
  readonly finder: RouteFinder;
  readonly proxy: ReverseProxy;
  readonly exchanges: Exchanges;
  readonly staleConnections: Pick<StaleConnections, 'follow'>;
  readonly inFlight: InFlight;
  /** At most this many requests may be in flight to one sandbox. */
  readonly maxRequests: number;
  /** True if requests to sandboxes need a key. Preflights cannot have one. */
  readonly requireKey: boolean;
  /** These keys are removed from requests to sandboxes. */
  readonly keys: Keys;
  readonly forwarded: Forwarded;
  readonly times: RequestTimes;
  /** Answers requests that name no sandbox. */
  readonly platform: (request: IncomingMessage, response: ServerResponse) => void;
  readonly logger: Logger;
}

/**
 * Routes every request. A request that names a sandbox is forwarded to it, whatever its path is. Any other request is a
 * platform operation. So no path has two meanings.
 */
export class Router {
  readonly counts = Object.fromEntries(RESULTS.map((result) => [result, 0])) as Record<Result, number>;
  readonly #parts: RouterParts;
  readonly #log: AccessLog;

  constructor(parts: RouterParts) {
    this.#parts = parts;
    this.#log = new AccessLog(parts.logger, parts.forwarded);
  }

  request(request: IncomingMessage, response: ServerResponse): void {
    giveId(request);
    if (request.method === 'TRACE') {
      requestFrom(request, response).refuse(NO_TRACE);
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
    giveId(request);
    const downstream = upgradeFrom(request, socket, head);
    if (!downstream) return;
    this.#route(downstream, () => {
      this.#refuse(downstream, 'malformed', { code: 400, message: this.#parts.targets.missing().message });
    });
  }

  /** @param otherwise is called when the request names no sandbox */
  #route(downstream: Downstream, otherwise: () => void): void {
    try {
      const target = this.#readTarget(downstream);
      if (target !== null) this.#log.begin(downstream, target);
      if (target) void this.#forward(downstream, target);
      else if (target === null) otherwise();
    } catch (error) {
      this.#parts.logger.error(
        { err: error },
        'unexpected error: a request could not be answered, please report it',
      );
      this.#refuse(downstream, 'failed', toldOf(error));
    }
  }

  /** Returns the target, null if the request names no sandbox, or undefined if the request was refused. */
  #readTarget(downstream: Downstream): Target | null | undefined {
    try {
      return this.#parts.targets.read(downstream.request);
    } catch (error) {
      this.#refuse(downstream, 'malformed', toldOf(error));
      return undefined;
    }
  }

  async #forward(downstream: Downstream, target: Target): Promise<void> {
    const { proxy, exchanges, staleConnections, logger, times, keys } = this.#parts;
    const [{ request, stream }, started] = [downstream, monotonicMs()];
    try {
      const caller = keys.callerOf(request.headers);
      const client = caller?.kind === 'client' ? caller.name : null;
      const to = await this.#find(downstream, target);
      const { phase } = to;
      stream.once('close', () => times.exchanges.observe({ phase }, (monotonicMs() - started) / 1000));
      if (isRefusal(to)) {
        this.#refuse(downstream, to.result, to, target.id);
        return;
      }
      if (stream.destroyed || this.#isBusy(downstream, target, client)) return;
      this.counts.carried++;
      const { 'x-api-key': key } = request.headers;
      const isAllowed = () => isSame(keys.callerOf({ 'x-api-key': key }), caller);
      if (to.passMs < LONGEST_PASS_MS) endAfter(to.passMs, stream);
      request.url = this.#removeKeys(request, to.path);
      exchanges.add(target.id, { request, stream, party: to.party, incarnation: to.incarnation, isAllowed });
      staleConnections.follow(target.id, to.leftMs);
      downstream.forward(proxy, to, (error) => this.#fail(downstream, target, error));
    } catch (error) {
      logger.error({ err: error, sandboxID: target.id }, 'a request could not be routed');
      this.#refuse(downstream, 'failed', toldOf(error), target.id);
    }
  }

  #find({ request, stream, canRedirect }: Downstream, target: Target): Promise<Decision> {
    const { headers, url: path = '' } = request;
    const { previews, forwarded } = this.#parts;
    const by = { canRedirect: canRedirect && target.isByHost, isSecure: forwarded.isSecure(request) };
    const shown = previews.read(request, path, by);
    const caller = () => this.#parts.keys.callerOf(headers);
    const closed = () => closeSignal(stream);
    return this.#parts.finder.find({ target, path, caller, shown, via: headers.via, closed });
  }

  /**
   * Refuses a request beyond a limit, and returns true. Without the limit, a relay in a sandbox that removes `Via` could send
   * requests in a loop until the gateway has no connections left.
   */
  #isBusy(downstream: Downstream, { id }: Target, client: string | null): boolean {
    const { exchanges, inFlight, maxRequests } = this.#parts;
    const refusal = client === null ? null : inFlight.take(client, downstream.stream);
    if (refusal) {
      this.#refuse(downstream, 'limited', refusal, id);
      return true;
    }
    if (exchanges.countOf(id) < maxRequests) return false;
    const message = `sandbox '${id}' has ${maxRequests} requests in flight, the most that it may have: try again later`;
    this.#refuse(downstream, 'busy', { code: 503, message }, id);
    return true;
  }

  /** Removes what was shown to the gateway. Returns the path without it. */
  #removeKeys(request: IncomingMessage, path: string): string {
    const { headers, headersDistinct } = request;
    for (const name of Object.keys(headers).filter((each) => KEY_NAME.test(each)))
      if (headersDistinct[name]?.some((value) => this.#parts.keys.isKey(value))) delete headers[name];
    return this.#parts.previews.strip(request, path);
  }

  #fail(downstream: Downstream, { id, port }: Target, error: Error): void {
    if (downstream.stream.destroyed || downstream.stream.writableFinished) return;
    const invalid = isInvalidResponse(error);
    const reason = !invalid && 'code' in error ? String(error.code) : error.message;
    const message = invalid
      ? `the response of sandbox '${id}' on port ${port} is invalid: ${reason}`
      : `sandbox '${id}' cannot be reached on port ${port}: ${reason}`;
    const event = invalid ? 'a sandbox sent an invalid response' : 'a sandbox cannot be reached';
    this.#parts.logger.info({ sandboxID: id, port, reason }, event);
    this.#refuse(downstream, 'failed', { code: 502, message }, id);
  }

  #refuse(downstream: Downstream, result: Result, told: RefusalAnswer, sandboxID?: string): void {
    this.counts[result]++;
    downstream.refuse(told, sandboxID);
  }
}

/** Many servers read an underscore as a hyphen, so a client may have written either for a key. */
const KEY_NAME = /^x[-_]api[-_]key$/;

/** Longer than any pass is valid, and than a timer can wait; in ms. */
const LONGEST_PASS_MS = 2 ** 31;

/** Closes a stream when the pass of its client is valid no longer. */
function endAfter(ms: number, stream: Writable): void {
  const timer = setTimeout(() => stream.destroy(), ms).unref();
  stream.once('close', () => clearTimeout(timer));
}

function isSame(one: Caller | null, other: Caller | null): boolean {
  return (
    one?.kind === other?.kind &&
    (one?.kind !== 'client' || other?.kind !== 'client' || one.name === other.name)
  );
}

/** Gives a request an id if it has none. The sandbox, the response and the log name the request by it. */
function giveId({ headers }: IncomingMessage): void {
  headers['x-request-id'] ??= randomUUID();
}

function toldOf(error: unknown): RefusalAnswer {
  return { code: httpStatusOf(error), message: messageOf(error) };
}
