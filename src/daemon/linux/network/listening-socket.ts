import { closeSync, fstatSync } from 'node:fs';
import { isIP, SocketAddress } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { isSystemError } from '../../../base/errors.ts';
import { fromEarlierProgram } from '../processes/program.ts';
import { ManagerOutbox } from '../system/manager-outbox.ts';
import { native } from '../system/native.ts';
import { removeDescriptor, type StoredDescriptor, storeDescriptor } from '../system/systemd.ts';

/** Where to listen: an address or a host name, and a port; 0: any free one. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** Where earlier daemons have left sockets. */
export interface EarlierSockets {
  /** The socket of an earlier program of this process; null: there was none. */
  readonly inherited: number | null;
  /** Sockets that the service manager has kept. */
  readonly stored: readonly StoredDescriptor[];
  /** The socket of the service manager; null: there is none. */
  readonly notifySocket: string | null;
}

/** How long the service manager may take to close a socket at another address, in milliseconds. */
const RELEASE_MS = 1000;
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
 * Returns a descriptor of the daemon's listening socket: that of an earlier daemon if it listens at the wanted address, otherwise a new
 * one. The service manager keeps it while no daemon runs, because a stranger could take a port that is free, and with it the
 * access token; `onFailure` is told when the service manager cannot be reached. Throws the errors of bind(2), of listen(2), and of a
 * look-up of the host.
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
    manager.tell((socket) => removeDescriptor(socket, name));
  }
  const earlier = inherited ?? kept?.descriptor ?? null;
  const descriptor =
    earlier === null
      ? await listenWhenReleased(address, wanted.port, stale.length > 0 ? RELEASE_MS : 0)
      : fromEarlierProgram(earlier);
  manager.tell((socket) => storeDescriptor(socket, { name: nameOf(descriptor), descriptor }));
  manager.waitUntilTaken();
  return descriptor;
}

/** The port of a listening socket. */
export function portOf(listener: number): number {
  return Number(native.listeningAt(listener)?.port);
}

/** As Node's `listen` looks it up. */
async function resolve(host: string): Promise<string> {
  const { lookup } = await import('node:dns/promises');
  return (await lookup(host)).address;
}

function listensAt(descriptor: number, address: string, port: number): boolean {
  const found = native.listeningAt(descriptor);
  return found?.address === canonical(address) && (port === 0 || found.port === String(port));
}

/** The form in which the kernel tells an address: one of IPv6 has several. */
function canonical(address: string): string {
  if (isIP(address) !== 6 || address.includes('%')) return address;
  return new SocketAddress({ address, family: 'ipv6' }).address;
}

/** Tries again for `limitMs` while the port is taken. */
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

/** Another one for each socket, so that one can be removed without the others. Not one of the names of records. */
function nameOf(descriptor: number): string {
  return `listener-${fstatSync(descriptor).ino}`;
}
