import { EnvdError, messageOf } from '../../base/errors.ts';
import { CommandLimit } from './command-limit.ts';
import { GroupSync } from './group-sync.ts';
import type { RedisClient } from './redis-client.ts';
import { BARRIER } from './redis-scripts.ts';

/** How long replicas may take to get a change, in ms; less than a command may take. */
const LIMIT_MS = 1000;

/**
 * Waits until replicas of a server have what was written to it (WAIT), so that it survives the server. On a connection of its
 * own: WAIT holds up what comes behind it.
 */
export class Replication {
  readonly #group: GroupSync;
  readonly #limit = new CommandLimit();

  /** @param client connected before anything is written, so that it is the same server to which that was written */
  constructor(client: RedisClient, replicas: number, isCluster: boolean) {
    const barrier = isCluster ? write : publish;
    this.#group = new GroupSync(() => this.#limit.run(() => reach(client, barrier, replicas)));
  }

  /** Resolves when the replicas have what was written before the call. Throws `unavailable` when they have not in time. */
  sync(): Promise<void> {
    return this.#group.sync();
  }
}

type Barrier = (client: RedisClient) => Promise<unknown>;

const publish: Barrier = (client) => client.publish(BARRIER, '');
/** In a cluster messages do not go the way of writes. */
const write: Barrier = (client) => client.set(BARRIER, '');

async function reach(client: RedisClient, barrier: Barrier, replicas: number): Promise<void> {
  // WAIT is for what its own connection has sent to the replicas: a message, behind all earlier writes of others.
  const [, reached] = await Promise.all([barrier(client), client.wait(replicas, LIMIT_MS)]).catch(
    (error: unknown) => refuse(messageOf(error), error),
  );
  if (reached < replicas) refuse(`${reached} of ${replicas} replicas have it after ${LIMIT_MS / 1000} s`);
}

function refuse(reason: string, cause?: unknown): never {
  const message = `the registry has not replicated the change, which may be lost: ${reason}`;
  throw new EnvdError('unavailable', message, { cause });
}
