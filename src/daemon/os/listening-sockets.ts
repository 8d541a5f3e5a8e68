import { native } from './native.ts';

/** Where a TCP socket is listened on. */
export type ListeningPlace = '127.0.0.1' | '::1' | 'any address' | 'this address' | 'elsewhere';

/** Bytes of each socket in a dump: family, port, address. */
const RECORD = 20;
/** linux/socket.h */
const AF_INET = 2;
const IPV4_LOOPBACK = 0x7f000001;

/**
 * Reads which TCP sockets of this network namespace are listened on: the first 8192 of them, those of IPv4 first. Throws the
 * errors of sock_diag(7).
 */
export function readListeningSockets(): Buffer {
  return native.listeningSockets();
}

/** Calls `visit` for each socket of a dump. `address`: an IPv4 address, this one. */
export function eachListeningSocket(
  dump: Buffer,
  address: string,
  visit: (port: number, place: ListeningPlace) => void,
): void {
  const own = ipv4Of(address);
  for (let at = 0; at + RECORD <= dump.length; at += RECORD) {
    const isIPv4 = dump.readUInt16BE(at) === AF_INET;
    visit(dump.readUInt16BE(at + 2), isIPv4 ? place4(dump, at + 4, own) : place6(dump, at + 4, own));
  }
}

function ipv4Of(address: string): number {
  return address.split('.').reduce((sum, byte) => sum * 256 + Number(byte), 0);
}

function place4(dump: Buffer, at: number, own: number): ListeningPlace {
  const address = dump.readUInt32BE(at);
  if (address === IPV4_LOOPBACK) return '127.0.0.1';
  if (address === 0) return 'any address';
  return address === own ? 'this address' : 'elsewhere';
}

/** IPv4-mapped addresses, RFC 4291, section 2.5.5.2, are those of IPv4. */
function place6(dump: Buffer, at: number, own: number): ListeningPlace {
  if (dump.readUInt32BE(at) !== 0 || dump.readUInt32BE(at + 4) !== 0) return 'elsewhere';
  const third = dump.readUInt32BE(at + 8);
  if (third === 0xffff) return place4(dump, at + 12, own);
  const last = dump.readUInt32BE(at + 12);
  if (third !== 0 || last > 1) return 'elsewhere';
  return last === 1 ? '::1' : 'any address';
}
