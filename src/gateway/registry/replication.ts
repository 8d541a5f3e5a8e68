import { EnvdError, messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import { CommandLimit } from './command-limit.ts';
import { GroupSync } from './group-sync.ts';
import type { RedisClient } from './redis-client.ts';
import { BARRIER } from './redis-scripts.ts';

/** How long replicas may take to get a change, in ms; less than a command may take. */
const LIMIT_MS = 1000;
/** How long no more replicas are waited for than had a change in time, in ms. */
const LENIENT_MS = 10_000;

/**
 * Waits until replicas of a server have what was written to it (WAIT), so that it survives the server: until all have it that
 * are connected, any of which may be made the master, or for `LIMIT_MS`; then `least` must have it. On a connection of its own:
 * WAIT holds up what comes behind it.
 */
export class Replication {
  readonly #client: RedisClient;
  readonly #least: number;
  readonly #barrier: Barrier;
  readonly #group: GroupSync;
  readonly #limit = new CommandLimit();
  /** How many are waited for. */
  #wanted: number;
  #lenientUntil = 0;

  /** @param client connected before anything is written, so that it is the same server to which that was written */
  constructor(client: RedisClient, least: number, isCluster: boolean) {
    this.#client = client;
    this.#least = least;
    this.#wanted = least;
    this.#barrier = isCluster ? write : publish;
    this.#group = new GroupSync(() => this.#reach());
  }

  /** Resolves when the replicas have what was written before the call. Throws `unavailable` when they have not in time. */
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
      // A replica that hangs would hold up every change until the server gives it up, a minute later.
      if (isLate) this.#lenientUntil = monotonicMs() + LENIENT_MS;
      const isLenient = monotonicMs() < this.#lenientUntil;
      this.#wanted = Math.max(this.#least, isLenient ? Math.min(reached, connected) : connected);
      if (this.#wanted <= wanted) return;
    }
  }

  /** How many replicas have what was written, and how many are connected. */
  async #wait(wanted: number): Promise<{ readonly reached: number; readonly connected: number }> {
    const client = this.#client;
    // WAIT is for what its own connection has sent to the replicas: a message, behind all earlier writes of others.
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
/** In a cluster messages do not go the way of writes. */
const write: Barrier = (client) => client.set(BARRIER, '');

function refuse(reason: string, cause?: unknown): never {
  const message = `the registry has not replicated the change, which may be lost: ${reason}`;
  throw new EnvdError('unavailable', message, { cause });
}
