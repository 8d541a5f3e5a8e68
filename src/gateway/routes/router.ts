import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { equalSecrets } from '../../base/secrets.ts';
import { isReachable, type Sandbox } from '../leases/sandbox.ts';
import type { Exchanges } from '../proxy/exchanges.ts';
import type { Carrier, Destination } from '../proxy/proxy.ts';
import { isUnusable } from '../proxy/unusable.ts';
import type { Registry } from '../registry/registry.ts';
import { statusOf } from './answers.ts';
import { type Caller, requester, upgrader } from './caller.ts';
import { closedOperation, originForm } from './closed-paths.ts';
import { answerPreflight, isPreflight } from './preflight.ts';
import { DAEMON_PORT, type Target, type TargetReader } from './target.ts';

export interface DoorParts {
  readonly targets: TargetReader;
  readonly registry: Registry;
  readonly carrier: Carrier;
  readonly exchanges: Exchanges;
  /** Not for the sandboxes: a client that shows it to one is spared that. */
  readonly apiKey: string;
  /** Answers what names no sandbox. */
  readonly platform: (request: IncomingMessage, response: ServerResponse) => void;
  readonly logger: Logger;
}

/** What became of the requests to sandboxes. */
export const PASSAGES = ['carried', 'malformed', 'closed', 'unknown', 'expired', 'failed'] as const;
export type Passage = (typeof PASSAGES)[number];

/**
 * Every request comes in here. One that names a sandbox goes to it, whatever its path; one that names none is for the
 * platform. So the two can never be taken for each other.
 */
export class Door {
  readonly counts = Object.fromEntries(PASSAGES.map((passage) => [passage, 0])) as Record<Passage, number>;
  readonly #parts: DoorParts;

  constructor(parts: DoorParts) {
    this.#parts = parts;
  }

  request(request: IncomingMessage, response: ServerResponse): void {
    const caller = requester(request, response);
    this.#enter(caller, () => {
      if (isPreflight(request)) answerPreflight(request, response);
      else this.#parts.platform(request, response);
    });
  }

  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const caller = upgrader(request, socket, head);
    if (!caller) return;
    this.#enter(caller, () => {
      this.#refuse(caller, 'malformed', 400, this.#parts.targets.missing().message);
    });
  }

  /** `otherwise`: the caller names no sandbox. */
  #enter(caller: Caller, otherwise: () => void): void {
    try {
      const target = this.#readTarget(caller);
      if (target) void this.#pass(caller, target);
      else if (target === null) otherwise();
    } catch (error) {
      this.#parts.logger.error({ err: error }, 'a request could not be answered');
      this.#refuse(caller, 'failed', 500, messageOf(error));
    }
  }

  /** Null: it names no sandbox. Undefined: it was refused. */
  #readTarget(caller: Caller): Target | null | undefined {
    try {
      return this.#parts.targets.read(caller.request);
    } catch (error) {
      this.#refuse(caller, 'malformed', statusOf(error), messageOf(error));
      return undefined;
    }
  }

  async #pass(caller: Caller, target: Target): Promise<void> {
    const { carrier, exchanges, logger } = this.#parts;
    try {
      const to = await this.#destination(caller, target);
      if (!to || caller.exchange.destroyed) return;
      this.counts.carried++;
      this.#spareApiKey(caller.request);
      exchanges.add(target.id, caller.exchange);
      caller.carry(carrier, to, (error) => this.#fail(caller, target, error));
    } catch (error) {
      logger.error({ err: error, sandboxID: target.id }, 'a request could not be routed');
      this.#refuse(caller, 'failed', 500, messageOf(error), target.id);
    }
  }

  /** Null when the request was refused. */
  async #destination(caller: Caller, { id, port }: Target): Promise<Destination | null> {
    const path = originForm(caller.request.url ?? '');
    if (path === null) return this.#refuse(caller, 'malformed', 400, 'the request target is not a path', id);
    caller.request.url = path;
    const { sandbox, now } = await this.#parts.registry.find(id);
    if (!sandbox || !isReachable(sandbox, now)) {
      return this.#refuse(caller, sandbox ? 'expired' : 'unknown', 502, absence(id, sandbox), id);
    }
    const inside = port === DAEMON_PORT ? sandbox.port : port;
    const closed = inside === sandbox.port ? closedOperation(path) : null;
    if (closed !== null) return this.#refuse(caller, 'closed', 403, `${closed} is not open to clients`, id);
    return { sandboxId: id, address: sandbox.address, port: inside };
  }

  #spareApiKey({ headers, headersDistinct }: IncomingMessage): void {
    const shown = headersDistinct['x-api-key'] ?? [];
    if (shown.some((value) => equalSecrets(value, this.#parts.apiKey))) delete headers['x-api-key'];
  }

  #fail(caller: Caller, { id, port }: Target, error: Error): void {
    if (caller.exchange.destroyed || caller.exchange.writableFinished) return;
    const unusable = isUnusable(error);
    const reason = !unusable && 'code' in error ? String(error.code) : error.message;
    const message = unusable
      ? `the answer of sandbox '${id}' on port ${port} cannot be passed on: ${reason}`
      : `sandbox '${id}' cannot be reached on port ${port}: ${reason}`;
    const what = unusable ? 'an answer cannot be passed on' : 'a sandbox cannot be reached';
    this.#parts.logger.info({ sandboxID: id, port, reason }, what);
    this.#refuse(caller, 'failed', 502, message, id);
  }

  #refuse(caller: Caller, passage: Passage, code: number, message: string, sandboxID?: string): null {
    this.counts[passage]++;
    caller.refuse(code, message, sandboxID);
    return null;
  }
}

function absence(id: string, sandbox: Sandbox | null): string {
  if (!sandbox) return `sandbox '${id}' is not known`;
  return sandbox.phase === 'paused' ? `sandbox '${id}' is paused` : `sandbox '${id}' has expired`;
}
