import { Code, ConnectError } from '@connectrpc/connect';
import { addPiece } from './http.ts';

const HEAD_BYTES = 5;
const COMPRESSED = 1;
const END = 2;

/** A message of a stream, or its end. */
export interface RpcFrame {
  readonly isEnd: boolean;
  readonly bytes: Buffer;
}

/** Returns a message as streams have it: after its flags and its length. */
export function rpcFrameOf(message: Uint8Array): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** Takes a stream apart into messages, however its bytes arrive. */
export class RpcFrameReader {
  readonly #maxBytes: number;
  #pieces: Buffer[] = [];
  #length = 0;
  /** With this many bytes, the next message may be complete. */
  #wanted = HEAD_BYTES;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Yields the messages that a piece completes. Throws `ConnectError` for one that is compressed or too long. */
  *read(piece: Buffer): Generator<RpcFrame> {
    addPiece(this.#pieces, piece);
    this.#length += piece.length;
    if (this.#length < this.#wanted) return;
    const [first] = this.#pieces;
    const bytes = first && this.#pieces.length === 1 ? first : Buffer.concat(this.#pieces);
    let at = 0;
    for (this.#wanted = HEAD_BYTES; bytes.length - at >= HEAD_BYTES; ) {
      const end = at + HEAD_BYTES + this.#lengthOf(bytes, at);
      if (end > bytes.length) {
        this.#wanted = end - at;
        break;
      }
      const isEnd = ((bytes[at] ?? 0) & END) !== 0;
      yield { isEnd, bytes: bytes.subarray(at + HEAD_BYTES, end) };
      at = end;
    }
    this.#pieces = [bytes.subarray(at)];
    this.#length = bytes.length - at;
  }

  #lengthOf(bytes: Buffer, at: number): number {
    if ((bytes[at] ?? 0) & COMPRESSED)
      throw new ConnectError('the daemon sent a compressed message, which was not asked for', Code.Internal);
    const length = bytes.readUInt32BE(at + 1);
    if (length <= this.#maxBytes) return length;
    const told = `the daemon sent a message of ${length} bytes, which are more than ${this.#maxBytes}`;
    throw new ConnectError(told, Code.ResourceExhausted);
  }
}
