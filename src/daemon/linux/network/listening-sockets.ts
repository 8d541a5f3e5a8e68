import { AF_INET, readSockets } from './socket-diagnosis.ts';

/** The address that a TCP socket listens on; `this address` is the one that was asked for. */
export type ListeningPlace = '127.0.0.1' | '::1' | 'any address' | 'this address';

/**
 * The listening sockets. A key combines port, address and owner (uid), see `eachListeningSocket`, and the value is the inode.
 * Sockets that differ by nothing but their inodes count once, with the lowest one, so that any number of them takes no more
 * memory.
 */
export type ListeningSockets = ReadonlyMap<number, number>;

const PLACES: readonly ListeningPlace[] = ['127.0.0.1', '::1', 'any address', 'this address'];
const PORTS = 65_536;
/** Parts of addresses, as they are in memory on a little-endian machine. */
const IPV4_LOOPBACK = 0x0100007f;
const IPV6_LOOPBACK_END = 0x01000000;
const IPV4_MAPPED = 0xffff0000;

const TCP_LISTEN = 10;
/**
 * The positions of the addresses, the uid and the inode in struct inet_diag_msg, in words. It begins with family, state and
 * timer, and both ports.
 */
const ADDRESS_WORD = 2;
const UID_WORD = 16;
const INODE_WORD = 17;

/**
 * Reads which TCP sockets of this network namespace listen on 127.0.0.1, ::1, all addresses, or `address`, which is one of
 * IPv4. It reads all of them, however many there are, in several turns of the event loop. Throws sock_diag(7)'s errors.
 */
export async function readListeningSockets(address: string): Promise<ListeningSockets> {
  const own = address.split('.').reduceRight((sum, byte) => sum * 256 + Number(byte), 0);
  const sockets = new Map<number, number>();
  // A struct inet_diag_msg begins at the word `from`.
  await readSockets({ states: [TCP_LISTEN] }, (answer, from) => {
    const word = (at: number) => (answer[from + at] ?? 0) >>> 0;
    const isIPv4 = (word(0) & 0xff) === AF_INET;
    const addressWord = (at: number) => word(ADDRESS_WORD + at);
    const place = isIPv4 ? place4(addressWord(0), own) : place6(addressWord, own);
    if (place === null) return;
    const port = ((word(1) & 0xff) << 8) | ((word(1) >> 8) & 0xff);
    const socket = (word(UID_WORD) * PLACES.length + PLACES.indexOf(place)) * PORTS + port;
    const inode = word(INODE_WORD);
    sockets.set(socket, Math.min(sockets.get(socket) ?? inode, inode));
  });
  return sockets;
}

export function eachListeningSocket(
  sockets: ListeningSockets,
  visit: (port: number, place: ListeningPlace, uid: number, inode: number) => void,
): void {
  for (const [socket, inode] of sockets) {
    const owned = Math.floor(socket / PORTS);
    const place = PLACES[owned % PLACES.length];
    if (place) visit(socket % PORTS, place, Math.floor(owned / PLACES.length), inode);
  }
}

/** Returns null when the socket listens at another address. */
function place4(address: number, own: number): ListeningPlace | null {
  if (address === IPV4_LOOPBACK) return '127.0.0.1';
  if (address === 0) return 'any address';
  return address === own ? 'this address' : null;
}

/** Does the same for IPv6. IPv4-mapped addresses count as those of IPv4: RFC 4291, section 2.5.5.2. */
function place6(word: (at: number) => number, own: number): ListeningPlace | null {
  if (word(0) !== 0 || word(1) !== 0) return null;
  if (word(2) === IPV4_MAPPED) return place4(word(3), own);
  if (word(2) !== 0) return null;
  if (word(3) === 0) return 'any address';
  return word(3) === IPV6_LOOPBACK_END ? '::1' : null;
}
