import { closeSync, readSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { getSystemErrorName } from 'node:util';
import { native } from './native.ts';

/** Where a TCP socket is listened on. */
export type ListeningPlace = '127.0.0.1' | '::1' | 'any address' | 'this address' | 'elsewhere';

/** Bytes of each socket in a dump: port (big endian), family (little endian), address, uid of who made it. */
const RECORD = 24;
const WORD = 4;
/** linux/socket.h */
const AF_INET = 2;
const IPV4_LOOPBACK = 0x7f000001;

/** All ports of one address, or one port of as many. */
const MOST = 65_536;
/** Sockets that are read in a turn of the event loop, in some 3 ms. */
const TURN = 2048;
const AF_INET6 = 10;
const IPPROTO_TCP = 6;
const TCP_LISTEN = 10;
/** struct nlmsghdr: length, type, flags, sequence, port; numbers are the machine's, little-endian on all that are supported. */
const MESSAGE_HEAD = 16;
const BODY = MESSAGE_HEAD / WORD;
/** NLM_F_REQUEST | NLM_F_DUMP */
const DUMP = 0x301;
const NLMSG_ERROR = 2;
const SOCK_DIAG_BY_FAMILY = 20;
/** With struct inet_diag_req_v2. */
const REQUEST_BYTES = 72;
const READ_BYTES = 32_768;
/** Words before the uid in struct inet_diag_msg. */
const UID = 16;

/** The records so far. */
class Dump {
  #words = new Int32Array((TURN * RECORD) / WORD);
  #length = 0;

  get count(): number {
    return (this.#length * WORD) / RECORD;
  }

  get bytes(): Buffer {
    return Buffer.from(this.#words.buffer, 0, this.#length * WORD);
  }

  /** `from`: of struct inet_diag_msg, which begins with family, state, timer, retransmissions, both ports and the address. */
  append(answer: Int32Array, from: number): void {
    if (this.#length === this.#words.length) {
      const grown = new Int32Array(2 * this.#length);
      grown.set(this.#words);
      this.#words = grown;
    }
    const word = (at: number) => answer[from + at] ?? 0;
    const own = [
      (word(1) & 0xffff) | ((word(0) & 0xff) << 16),
      word(2),
      word(3),
      word(4),
      word(5),
      word(UID),
    ];
    this.#words.set(own, this.#length);
    this.#length += own.length;
  }
}

/**
 * Reads which TCP sockets of this network namespace are listened on: the first 65,536 of them, those of IPv4 first. Throws the
 * errors of sock_diag(7).
 */
export async function readListeningSockets(): Promise<Buffer> {
  const dump = new Dump();
  for (const family of [AF_INET, AF_INET6]) await dumpFamily(family, dump);
  return dump.bytes;
}

/** The kernel answers at once. */
async function dumpFamily(family: number, dump: Dump): Promise<void> {
  const request = Buffer.alloc(REQUEST_BYTES);
  request.writeUInt32LE(REQUEST_BYTES, 0);
  request.writeUInt16LE(SOCK_DIAG_BY_FAMILY, 4);
  request.writeUInt16LE(DUMP, 6);
  request[MESSAGE_HEAD] = family;
  request[MESSAGE_HEAD + 1] = IPPROTO_TCP;
  request.writeUInt32LE(1 << TCP_LISTEN, MESSAGE_HEAD + 4);
  const socket = native.openSocketDiagnosis();
  try {
    writeSync(socket, request);
    for (let until = TURN; readAnswer(socket, dump); ) {
      if (dump.count < until) continue;
      until = dump.count + TURN;
      await nextTurn();
    }
  } finally {
    closeSync(socket);
  }
}

/** Reads the next part of the answer; false after the last. */
function readAnswer(socket: number, dump: Dump): boolean {
  const answer = new Int32Array(READ_BYTES / WORD);
  const size = readSync(socket, answer) / WORD;
  for (let at = 0; at < size; at += Math.max(BODY, Math.ceil((answer[at] ?? 0) / WORD))) {
    const type = (answer[at + 1] ?? 0) & 0xffff;
    if (type === NLMSG_ERROR) throwUnlessUnknown(-(answer[at + BODY] ?? 0));
    if (type !== SOCK_DIAG_BY_FAMILY || dump.count === MOST) return false;
    dump.append(answer, at + BODY);
  }
  return size > 0;
}

/** Without IPv6 the kernel knows no such family: ENOENT. */
function throwUnlessUnknown(errno: number): void {
  if (errno === constants.errno.ENOENT) return;
  const code = getSystemErrorName(-errno);
  throw Object.assign(new Error(`${code}: sock_diag`), { code, errno: -errno, syscall: 'sock_diag' });
}

/** Calls `visit` for each socket of a dump. `address`: an IPv4 address, this one. */
export function eachListeningSocket(
  dump: Buffer,
  address: string,
  visit: (port: number, place: ListeningPlace, uid: number) => void,
): void {
  const own = ipv4Of(address);
  for (let at = 0; at + RECORD <= dump.length; at += RECORD) {
    const isIPv4 = dump.readUInt16LE(at + 2) === AF_INET;
    const place = isIPv4 ? place4(dump, at + 4, own) : place6(dump, at + 4, own);
    visit(dump.readUInt16BE(at), place, dump.readUInt32LE(at + RECORD - 4));
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
