import { closeSync, fstatSync } from 'node:fs';
import { isIP, SocketAddress } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { isSystemError } from '../../../base/errors.ts';
import { fromEarlierProgram } from '../processes/program.ts';
import { ManagerOutbox } from '../system/manager-outbox.ts';
import { native } from '../system/native.ts';
import { removeDescriptor, type StoredDescriptor, storeDescriptor } from '../system/systemd.ts';

/** Where to listen: an address or a host name, and a port. The port 0 means any that is free. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** The sockets that earlier daemons have left. */
export interface EarlierSockets {
  /** The socket of an earlier program of this process; null when there was none. */
  readonly inherited: number | null;
  /** The sockets that the service manager has kept. */
  readonly stored: readonly StoredDescriptor[];
  /** The socket of the service manager; null when there is none. */
  readonly notifySocket: string | null;
}

/** How long the service manager may take to close a socket at another address, in milliseconds. */
const RELEASE_MS = 1000;
/** How long to wait before a port that is taken is tried again, in milliseconds. */
const RETRY_MS = 5;

/** Separates the listening sockets among the descriptors that the service manager has kept. */
export function separateSockets(stored: readonly StoredDescriptor[]): {
  readonly sockets: readonly StoredDescriptor[];
  readonly others: readonly StoredDescriptor[];
} {
  const isSocket = ({ descriptor }: StoredDescriptor) => native.listeningAt(descriptor) !== null;
  return { sockets: stored.filter(isSocket), others: stored.filter((one) => !isSocket(one)) };
}

/**
 * Returns the descriptor of the daemon's listening socket: that of an earlier daemon if it listens at the wanted address,
 * otherwise a new one. The service manager keeps the socket while no daemon runs, because a stranger could take a port that
 * is free, and with it the access token. `onFailure` is called when the service manager cannot be reached. Throws the errors
 * of bind(2), listen(2) and a look-up of the host.
 */
export async function openListeningSocket(
  wanted: ListenAddress,
  { inherited, stored, notifySocket }: EarlierSockets,
  onFailure: (reason: string) => void,
): Promise<number> {
  const manager = new ManagerOutbox(notifySocket, onFailure);
  const address = isIP(wanted.host) === 0 ? await resolve(wanted.host) : wanted.host;
  const fits = ({ descriptor }: StoredDescriptor) => listensAt(descriptor, address, wanted.port);
  const kept = inherited === null ? stored.find(fits) : undefined;
  const stale = stored.filter((one) => one !== kept);
  for (const { name, descriptor } of stale) {
    closeSync(descriptor);
    manager.send((socket) => removeDescriptor(socket, name));
  }
  const earlier = inherited ?? kept?.descriptor ?? null;
  const descriptor =
    earlier === null
      ? await listenWhenReleased(address, wanted.port, stale.length > 0 ? RELEASE_MS : 0)
      : fromEarlierProgram(earlier);
  manager.send((socket) => storeDescriptor(socket, { name: nameOf(descriptor), descriptor }));
  manager.waitUntilTaken();
  return descriptor;
}

export function portOf(listener: number): number {
  return Number(native.listeningAt(listener)?.port);
}

/** Looks up a host name as the `listen` of Node does. */
async function resolve(host: string): Promise<string> {
  const { lookup } = await import('node:dns/promises');
  return (await lookup(host)).address;
}

function listensAt(descriptor: number, address: string, port: number): boolean {
  const found = native.listeningAt(descriptor);
  return found?.address === canonical(address) && (port === 0 || found.port === String(port));
}

/** Returns an address in the form in which the kernel tells it. An address of IPv6 has several forms. */
function canonical(address: string): string {
  if (isIP(address) !== 6 || address.includes('%')) return address;
  return new SocketAddress({ address, family: 'ipv6' }).address;
}

/** Opens a listening socket. Tries again for `limitMs` while the port is taken. */
async function listenWhenReleased(address: string, port: number, limitMs: number): Promise<number> {
  for (let waited = 0; ; waited += RETRY_MS) {
    try {
      return native.listenAt(address, String(port), true);
    } catch (error) {
      if (!isSystemError(error, 'EADDRINUSE') || waited >= limitMs) throw error;
    }
    await delay(RETRY_MS);
  }
}

/** Returns a name that no other socket has, so that each can be removed alone. It differs from the names of records. */
function nameOf(descriptor: number): string {
  return `listener-${fstatSync(descriptor).ino}`;
}
