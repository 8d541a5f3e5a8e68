import { closeSync, readSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { getSystemErrorName } from 'node:util';
import { native } from '../system/native.ts';

/** Which TCP sockets of this network namespace are read. */
export interface SocketQuery {
  /** Source: include/net/tcp_states.h. */
  readonly states: readonly number[];
  /** The local port; all are read without it. */
  readonly port?: number;
  /** The attributes that are read with each socket, as the bits of `idiag_ext`. Source: linux/inet_diag.h. */
  readonly attributes?: number;
}

/** The struct inet_diag_msg of a socket begins at the word `from` of `answer`; its attributes end before the word `end`. */
type Visit = (answer: Int32Array, from: number, end: number) => void;

/** The family of IPv4. Source: linux/socket.h. */
export const AF_INET = 2;
const AF_INET6 = 10;
const IPPROTO_TCP = 6;
const WORD = 4;
/** How many sockets are read in a turn of the event loop, which takes some 3 ms. */
const TURN = 2048;
/**
 * The bytes of struct nlmsghdr: length, type, flags, sequence, port. Numbers are in the machine's byte order, which is
 * little-endian on all machines that are supported.
 */
const MESSAGE_HEAD = 16;
const BODY = MESSAGE_HEAD / WORD;
/** NLM_F_REQUEST | NLM_F_DUMP */
const DUMP = 0x301;
const NLMSG_ERROR = 2;
const SOCK_DIAG_BY_FAMILY = 20;
/** The bytes of a request: the head, and struct inet_diag_req_v2. */
const REQUEST_BYTES = 72;
const READ_BYTES = 32_768;

/**
 * Calls `visit` with each socket. Reads all of them, however many there are, in several turns of the event loop. Throws
 * sock_diag(7)'s errors.
 */
export async function readSockets(query: SocketQuery, visit: Visit): Promise<void> {
  for (const family of [AF_INET, AF_INET6]) await readFamily(family, query, visit);
}

/** Reads the sockets of a family. The reads are synchronous, because the kernel answers at once. */
async function readFamily(
  family: number,
  { states, port = 0, attributes = 0 }: SocketQuery,
  visit: Visit,
): Promise<void> {
  const request = Buffer.alloc(REQUEST_BYTES);
  request.writeUInt32LE(REQUEST_BYTES, 0);
  request.writeUInt16LE(SOCK_DIAG_BY_FAMILY, 4);
  request.writeUInt16LE(DUMP, 6);
  request.set([family, IPPROTO_TCP, attributes], MESSAGE_HEAD);
  request.writeUInt32LE(
    states.reduce((mask, state) => mask | (1 << state), 0),
    MESSAGE_HEAD + 4,
  );
  request.writeUInt16BE(port, MESSAGE_HEAD + 8);
  let count = 0;
  const visitCounted: Visit = (...socket) => {
    count++;
    visit(...socket);
  };
  const socket = native.openSocketDiagnosis();
  try {
    writeSync(socket, request);
    for (let until = TURN; readAnswer(socket, family, visitCounted); ) {
      if (count < until) continue;
      until = count + TURN;
      await nextTurn();
    }
  } finally {
    closeSync(socket);
  }
}

/** Reads the next part of the answer; returns false after the last one. */
function readAnswer(socket: number, family: number, visit: Visit): boolean {
  const answer = new Int32Array(READ_BYTES / WORD);
  const size = readSync(socket, answer) / WORD;
  for (let at = 0; at < size; ) {
    const next = at + Math.max(BODY, Math.ceil((answer[at] ?? 0) / WORD));
    const type = (answer[at + 1] ?? 0) & 0xffff;
    if (type === NLMSG_ERROR) throwUnlessNoIPv6(-(answer[at + BODY] ?? 0), family);
    if (type !== SOCK_DIAG_BY_FAMILY) return false;
    visit(answer, at + BODY, Math.min(next, size));
    at = next;
  }
  return size > 0;
}

/** Throws an error of sock_diag(7), unless it means that the kernel has no IPv6. */
function throwUnlessNoIPv6(errno: number, family: number): void {
  const isUnknown = errno === constants.errno.ENOENT;
  if (isUnknown && family === AF_INET6) return;
  const needed = isUnknown ? ', which needs CONFIG_INET_DIAG' : '';
  const code = getSystemErrorName(-errno);
  throw Object.assign(new Error(`${code}: sock_diag${needed}`), {
    code,
    errno: -errno,
    syscall: 'sock_diag',
  });
}
