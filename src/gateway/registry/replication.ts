import { EnvdError, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import { CommandLimit } from './command-limit.ts';
import { GroupSync } from './group-sync.ts';
import type { RedisClient } from './redis-client.ts';
import { BARRIER } from './redis-scripts.ts';

/** Replicas must have a change within this time, in ms. It is less than a command may take. */
const LIMIT_MS = 1000;
/** After a replica was late, only as many as were in time are waited for during this time, in ms. */
const LENIENT_MS = 10_000;

/**
 * Waits until replicas of a server have what was written to it (WAIT), so that the writes survive the loss of the server. It
 * waits for all connected replicas, because any of them may become the master. After `LIMIT_MS`, at least `least` must have
 * the writes. It has a connection of its own, because WAIT blocks later commands on its connection
 * (docs/decisions/030-replicated-changes.md).
 */
export class Replication {
  readonly #client: RedisClient;
  readonly #least: number;
  readonly #barrier: Barrier;
  readonly #group: GroupSync;
  readonly #limit = new CommandLimit();
  /** So many replicas are waited for. */
  #wanted: number;
  #lenientUntil = 0;

  /** @param client must be connected before anything is written, so that its server is the one that gets the writes */
  constructor(client: RedisClient, least: number, isCluster: boolean) {
    this.#client = client;
    this.#least = least;
    this.#wanted = least;
    this.#barrier = isCluster ? write : publish;
    this.#group = new GroupSync(() => this.#reach());
  }

  /**
   * Resolves when the replicas have what was written before the call. Throws `unavailable` when they do not have it in time.
   */
  sync(): Promise<void> {
    return this.#group.sync();
  }

  async #reach(): Promise<void> {
    for (;;) {
      const wanted = this.#wanted;
      const { reached, connected } = await this.#limit.run(() => this.#wait(wanted));
      if (reached < this.#least)
        refuse(`${reached} of ${this.#least} replicas have it after ${LIMIT_MS / 1000} s`);
      const isLate = reached < Math.min(wanted, connected);
      // Otherwise a replica that hangs would delay every change until the server drops it, a minute later.
      if (isLate) this.#lenientUntil = monotonicMs() + LENIENT_MS;
      const isLenient = monotonicMs() < this.#lenientUntil;
      this.#wanted = Math.max(this.#least, isLenient ? Math.min(reached, connected) : connected);
      if (this.#wanted <= wanted) return;
    }
  }

  /** Returns how many replicas have what was written, and how many are connected. */
  async #wait(wanted: number): Promise<{ readonly reached: number; readonly connected: number }> {
    const client = this.#client;
    // WAIT counts only writes of its own connection. So this connection first writes something, which comes behind all
    // earlier writes.
    const [, reached, info] = await Promise.all([
      this.#barrier(client),
      client.wait(wanted, LIMIT_MS),
      client.info('replication'),
    ]).catch((error: unknown) => refuse(messageOf(error), error));
    return { reached, connected: info.match(/state=online/g)?.length ?? 0 };
  }
}

type Barrier = (client: RedisClient) => Promise<unknown>;

const publish: Barrier = (client) => client.publish(BARRIER, '');
/** In a cluster, messages are not part of the stream of writes, so a key is written. */
const write: Barrier = (client) => client.set(BARRIER, '');

function refuse(reason: string, cause?: unknown): never {
  const message = `the registry did not replicate the change, which may be lost: ${reason}`;
  throw new EnvdError('unavailable', message, { cause });
}
