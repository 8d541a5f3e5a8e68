import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { isReachable } from '../leases/sandbox.ts';
import type { ReadRecord, Registry } from '../registry/registry.ts';
import type { Exchanges } from './exchanges.ts';
import type { ConnectionPools } from './pools.ts';

/** A check is repeated after this time if the registry could not be reached, in ms. */
const RETRY_MS = 1000;
/** A timer waits at most this time, in ms, because longer ones overflow. */
const LONGEST_MS = 24 * 3600 * 1000;

/**
 * Closes connections to sandboxes that have expired or were registered again, by whichever gateway, and connections of
 * clients whose keys are no longer valid.
 */
export class StaleConnections implements Disposable {
  readonly #exchanges: Exchanges;
  readonly #pools: ConnectionPools;
  readonly #registry: Registry;
  readonly #logger: Logger;
  /** The keys are ids of sandboxes. Each timer ends at the deadline, as far as it is known. */
  readonly #deadlines = new Map<string, NodeJS.Timeout>();
  #retry: NodeJS.Timeout | undefined;

  constructor(exchanges: Exchanges, pools: ConnectionPools, registry: Registry, logger: Logger) {
    this.#exchanges = exchanges;
    this.#pools = pools;
    this.#registry = registry;
    this.#logger = logger;
  }

  /** Closes all connections to a sandbox, in flight or idle. */
  close(sandboxId: string): void {
    clearTimeout(this.#deadlines.get(sandboxId));
    this.#deadlines.delete(sandboxId);
    this.#exchanges.end(sandboxId);
    this.#pools.close(sandboxId);
  }

  /** Checks the connections to a sandbox in `leftMs`, when it expires unless its deadline changes. */
  follow(sandboxId: string, leftMs: number): void {
    if (!this.#deadlines.has(sandboxId)) this.#setTimer(sandboxId, leftMs);
  }

  /** Must be called when a record has changed. `changed` is null if any record, or the keys, may have changed. */
  async check(changed: string | null): Promise<void> {
    try {
      for (const id of this.#inUse(changed))
        this.#settle(id, await this.#registry.find(id), changed === null);
    } catch (error) {
      const reason = messageOf(error);
      this.#logger.debug(
        { reason },
        'the records of open connections could not be read from the registry: trying again',
      );
      clearTimeout(this.#retry);
      this.#retry = setTimeout(() => void this.check(null), RETRY_MS).unref();
    }
  }

  /** Records change often, so all sandboxes are gone through only if any record may have changed. */
  #inUse(changed: string | null): Iterable<string> {
    if (changed === null) return new Set([...this.#exchanges.sandboxIds(), ...this.#pools.sandboxIds()]);
    return this.#exchanges.countOf(changed) > 0 || this.#pools.has(changed) ? [changed] : [];
  }

  #settle(id: string, { sandbox, now }: ReadRecord, mayKeysHaveChanged: boolean): void {
    if (!sandbox || !isReachable(sandbox, now)) {
      this.close(id);
      return;
    }
    const { incarnation } = sandbox;
    this.#exchanges.end(
      id,
      (each) => each.incarnation !== incarnation || (mayKeysHaveChanged && !each.isAllowed()),
    );
    this.#pools.close(id, incarnation);
    this.#setTimer(id, sandbox.deadline - now);
  }

  #setTimer(id: string, leftMs: number): void {
    clearTimeout(this.#deadlines.get(id));
    const onTime = () => {
      this.#deadlines.delete(id);
      void this.check(id);
    };
    this.#deadlines.set(id, setTimeout(onTime, Math.min(leftMs, LONGEST_MS)).unref());
  }

  [Symbol.dispose](): void {
    for (const timer of [this.#retry, ...this.#deadlines.values()]) clearTimeout(timer);
  }
}
