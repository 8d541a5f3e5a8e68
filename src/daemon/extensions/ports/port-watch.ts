import { setTimeout as delay } from 'node:timers/promises';
import { within } from '../../../base/abort.ts';
import { EnvdError, isSystemError, messageOf } from '../../../base/errors.ts';
import { PROCFS } from '../../linux/lanes/lane.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { eachListeningSocket, readListeningSockets } from '../../linux/network/listening-sockets.ts';
import { holdersOf, type SocketHolder } from '../../linux/network/socket-holders.ts';
import type { UserDatabase } from '../../linux/system/users.ts';
import type { Listener } from '../../services/ports/forward.ts';
import { fairShares } from '../../services/ports/shares.ts';

/** A TCP port that is listened at, and reached at localhost. */
export interface ListeningPort {
  readonly port: number;
  /** `127.0.0.1`, `::1`, or `*` for all addresses. */
  readonly address: string;
  readonly user: string;
  /** Null: the process is not known. */
  readonly pid: number | null;
  readonly command: string | null;
}

/** By the JSON of each, so that what has changed is what has another key. */
export type ListeningPorts = ReadonlyMap<string, ListeningPort>;

/** How often the ports are read while somebody follows them, in milliseconds, unless that takes more than `MOST_SHARE` of a core. */
const INTERVAL_MS = 200;
const MOST_SHARE = 0.05;
/** How long the search for the processes of new sockets may delay an answer, in milliseconds. */
const SEARCH_MS = 5000;
/** The most ports that are told. */
const MOST_PORTS = 1024;

/** Reads the ports for all who follow them. Nothing is read while nobody does. */
export class PortWatch {
  readonly #users: UserDatabase;
  readonly #lanes: Lanes;
  readonly #followers = new Set<(ports: ListeningPorts) => void>();
  /** By inode, of the sockets that were seen last. */
  #holders = new Map<number, SocketHolder | null>();
  #isRunning = false;
  /** There is one search at a time, because a process of the guest can delay it for any time. */
  #searching: Promise<void> | null = null;
  #isLate = false;

  constructor(users: UserDatabase, lanes: Lanes) {
    this.#users = users;
    this.#lanes = lanes;
  }

  /** Calls `listener` with all ports now and again. Returns a function that ends that. */
  follow(listener: (ports: ListeningPorts) => void): () => void {
    this.#followers.add(listener);
    if (!this.#isRunning) void this.#run();
    return () => void this.#followers.delete(listener);
  }

  /** Throws `failed_precondition` when the kernel does not tell. */
  async read(): Promise<ListeningPorts> {
    const found = await readSockets();
    const inodes = found.map(({ inode }) => inode);
    await this.#search(new Set(inodes.filter((inode) => !this.#holders.has(inode))));
    const listed = new Set(inodes);
    this.#holders = new Map([...this.#holders].filter(([inode]) => listed.has(inode)));
    const names = this.#users.names();
    const ports = found.map(({ port, target, uid, inode }): ListeningPort => {
      const { pid = null, command = null } = this.#holders.get(inode) ?? {};
      return { port, address: target, user: names.userName(uid), pid, command };
    });
    return new Map(ports.map((port) => [JSON.stringify(port), port]));
  }

  /** Finds the processes of these sockets. They stay unknown until the next time if that takes too long. */
  async #search(inodes: ReadonlySet<number>): Promise<void> {
    await this.#inTime();
    if (inodes.size === 0 || this.#isLate) return;
    this.#searching ??= this.#lanes
      .runAtLast(PROCFS, () => this.#find(inodes))
      .finally(() => {
        this.#searching = null;
        this.#isLate = false;
      });
    await this.#inTime();
  }

  /** Waits for the search that is under way, unless somebody has waited too long for it. */
  async #inTime(): Promise<void> {
    if (this.#searching === null || this.#isLate) return;
    await within(SEARCH_MS, this.#searching, () => {
      this.#isLate = true;
    });
  }

  async #find(inodes: ReadonlySet<number>): Promise<void> {
    const found = await holdersOf(inodes).catch((error: unknown) => {
      if (isSystemError(error)) return null;
      throw error;
    });
    if (found) for (const inode of inodes) this.#holders.set(inode, found.get(inode) ?? null);
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#followers.size > 0) {
      const before = process.threadCpuUsage();
      // Without a descriptor or memory there is none this time.
      const ports = await this.read().catch(() => null);
      if (ports) for (const tell of [...this.#followers]) tell(ports);
      const { user, system } = process.threadCpuUsage(before);
      await delay(Math.max(INTERVAL_MS, (user + system) / 1000 / MOST_SHARE), undefined, { ref: false });
    }
    this.#isRunning = false;
  }
}

interface FoundSocket extends Listener {
  readonly inode: number;
}

async function readSockets(): Promise<readonly FoundSocket[]> {
  const found: FoundSocket[] = [];
  const sockets = await readListeningSockets('127.0.0.1').catch((error: unknown) => {
    if (!isSystemError(error)) throw error;
    throw new EnvdError('failed_precondition', `cannot read listening sockets: ${messageOf(error)}`);
  });
  eachListeningSocket(sockets, (port, place, uid, inode) =>
    found.push({ port, target: place === 'any address' ? '*' : place, uid, inode }),
  );
  return fairShares(found, MOST_PORTS);
}
