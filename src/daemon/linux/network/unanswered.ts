import { type Socket, SocketAddress } from 'node:net';
import { AF_INET, readSockets } from './socket-diagnosis.ts';

/** TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_CLOSE_WAIT, TCP_LAST_ACK and TCP_CLOSING: the states in which something may be under way. */
const STATES = [1, 4, 8, 9, 11];
/** INET_DIAG_INFO, as an attribute and as a bit of `idiag_ext`. Its value is struct tcp_info of linux/tcp.h. */
const INFO = 2;
const INFO_BIT = 1 << (INFO - 1);
const WORD = 4;
/** The positions in struct inet_diag_msg, in words: both ports, both addresses, the queue of what was not acknowledged, its size. */
const [PORTS_WORD, LOCAL_WORD, PEER_WORD, QUEUE_WORD, SOCKET_WORDS] = [1, 2, 6, 15, 18] as const;
/** The position of `tcpi_last_ack_recv` in struct tcp_info, in words. */
const LAST_ACK_WORD = 14;

/**
 * Reads the connections of a local port that have sent something again, or have probed a closed window, and wait for the answer
 * of the peer. Returns how long each peer has acknowledged nothing, in milliseconds, by `nameOfConnection`. Throws
 * sock_diag(7)'s errors.
 */
export async function readUnanswered(port: number): Promise<ReadonlyMap<string, number>> {
  const found = new Map<string, number>();
  await readSockets({ states: STATES, port, attributes: INFO_BIT }, (answer, from, end) => {
    const info = findInfo(answer, from + SOCKET_WORDS, end);
    if (info === null || answer[from + QUEUE_WORD] === 0) return;
    // It begins with the bytes tcpi_state, tcpi_ca_state, tcpi_retransmits and tcpi_probes.
    const attempts = (answer[info] ?? 0) >>> 16;
    if (attempts > 0) found.set(nameIn(answer, from), (answer[info + LAST_ACK_WORD] ?? 0) >>> 0);
  });
  return found;
}

/** Returns a text that tells a connection from all others. */
export function nameOfConnection(socket: Socket): string {
  const { localAddress = '', remoteAddress = '', remotePort } = socket;
  return nameOf(localAddress, remoteAddress, remotePort ?? 0);
}

/** The kernel's answer does not tell the name of an interface, which Node appends to link-local addresses. */
function nameOf(local: string, remote: string, port: number): string {
  const addresses = `${local} ${remote}`.replaceAll(/%\S+/g, '');
  return `${addresses} ${port}`;
}

/** Returns the position of struct tcp_info among attributes, each a struct nlattr and its value; null: there is none. */
function findInfo(answer: Int32Array, from: number, end: number): number | null {
  for (let at = from; at < end; ) {
    const head = (answer[at] ?? 0) >>> 0;
    if (head >>> 16 === INFO) return at + 1;
    at += Math.max(1, Math.ceil((head & 0xffff) / WORD));
  }
  return null;
}

function nameIn(answer: Int32Array, from: number): string {
  const bytes = Buffer.from(answer.buffer, from * WORD, SOCKET_WORDS * WORD);
  const isIPv4 = bytes[0] === AF_INET;
  const address = (word: number) => {
    const own = bytes.subarray(word * WORD);
    if (isIPv4) return own.subarray(0, 4).join('.');
    const groups = Array.from({ length: 8 }, (_, group) => own.readUInt16BE(2 * group).toString(16));
    return new SocketAddress({ address: groups.join(':'), family: 'ipv6' }).address;
  };
  return nameOf(address(LOCAL_WORD), address(PEER_WORD), bytes.readUInt16BE(PORTS_WORD * WORD + 2));
}
