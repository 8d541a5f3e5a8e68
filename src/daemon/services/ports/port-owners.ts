import { eachListeningSocket, type ListeningSockets } from '../../linux/network/listening-sockets.ts';
import type { Listener } from './forward.ts';

/** A user who listens at a port that belongs to another user's listener. */
export interface Latecomer {
  readonly port: number;
  readonly user: number;
  /** The user whose listener the port belongs to. */
  readonly owner: number;
}

/**
 * Decides to which listener a port is forwarded. The user who listens at it first, at either loopback address, keeps it until
 * he listens no more. Otherwise a stranger could take over another user's port by listening at the other address.
 */
export class PortOwners {
  #owners = new Map<number, Listener>();
  /** The users who are known to have come later, by port and user. */
  #latecomers = new Map<string, Latecomer>();

  /** `earlier` are the owners that an earlier program of this process has found. */
  constructor(earlier: Iterable<Listener> = []) {
    for (const listener of earlier) this.#owners.set(listener.port, listener);
  }

  get listeners(): Iterable<Listener> {
    return this.#owners.values();
  }

  /** Updates the owners. Returns the users who have come too late and were not returned before. */
  update(found: ListeningSockets): readonly Latecomer[] {
    const owners = new Map<number, Listener & { readonly inode: number }>();
    const latecomers = new Map<string, Latecomer>();
    eachListeningSocket(found, (port, target, uid, inode) => {
      if (target !== '127.0.0.1' && target !== '::1') return;
      const listener = { port, target, uid, inode };
      const other = owners.get(port);
      const isFirst = !other || this.#precedes(listener, other);
      if (isFirst) owners.set(port, listener);
      if (other && other.uid !== uid) {
        const [owner, user] = isFirst ? [uid, other.uid] : [other.uid, uid];
        latecomers.set(`${port} ${user}`, { port, user, owner });
      }
    });
    const known = this.#latecomers;
    this.#owners = owners;
    this.#latecomers = latecomers;
    return [...latecomers].flatMap(([key, latecomer]) => (known.has(key) ? [] : [latecomer]));
  }

  /**
   * Returns whether `one` comes first. Of two that are new, the one whose socket has the lower inode was probably made first.
   */
  #precedes(one: Listener & { readonly inode: number }, other: typeof one): boolean {
    const owner = this.#owners.get(one.port);
    if (owner && isSameListener(owner, one)) return true;
    if (owner && isSameListener(owner, other)) return false;
    return one.inode < other.inode;
  }
}

/** Returns whether two are one listener, such as a group of sockets (SO_REUSEPORT), or a server that was started again. */
export function isSameListener(one: Listener, other: Listener | undefined): boolean {
  return one.port === other?.port && one.target === other.target && one.uid === other.uid;
}
