import { isUtf8 } from 'node:buffer';
import { StringDecoder } from 'node:string_decoder';

const FIRST_BYTES = 4096;
/**
 * One piece of JSON has this many bytes of output. It is a multiple of 3, so that base64 needs no padding within the text.
 */
const PIECE_BYTES = 48 * 1024;
/** A character in UTF-8 has at most this many bytes after the first one. */
const MOST_CONTINUED = 3;

/** Keeps the first and the last bytes of a stream, in a buffer that grows only as needed. */
export class HeadAndTail {
  readonly #most: number;
  /** Bytes before this position stay. Those after it are a ring. */
  readonly #headBytes: number;
  #bytes = Buffer.alloc(0);
  #total = 0;

  /** @param most the number of bytes that are kept */
  constructor(most: number) {
    this.#most = most;
    this.#headBytes = Math.floor(most / 2);
  }

  /** The number of bytes that the stream has had. */
  get total(): number {
    return this.#total;
  }

  /** The memory of the buffer, in bytes. */
  get capacity(): number {
    return this.#bytes.length;
  }

  get isTruncated(): boolean {
    return this.#total > this.#most;
  }

  add(bytes: Buffer): void {
    this.#grow(Math.min(this.#total + bytes.length, this.#most));
    for (let at = 0; at < bytes.length; ) {
      const place = this.#placeOf(this.#total);
      const length = Math.min(bytes.length - at, this.#bytes.length - place);
      bytes.copy(this.#bytes, place, at, at + length);
      this.#total += length;
      at += length;
    }
  }

  /**
   * Returns the kept bytes: in one part, or in two parts with `omitted` bytes between them. They are cut between characters.
   */
  parts(): { readonly head: Buffer; readonly tail: Buffer; readonly omitted: number } {
    if (!this.isTruncated)
      return { head: this.#bytes.subarray(0, this.#total), tail: Buffer.alloc(0), omitted: 0 };
    const start = this.#placeOf(this.#total);
    const whole = this.#bytes.subarray(0, this.#headBytes);
    const ring = Buffer.concat([this.#bytes.subarray(start), this.#bytes.subarray(this.#headBytes, start)]);
    const head = whole.subarray(0, endOfCharacters(whole));
    const tail = ring.subarray(beginOfCharacters(ring));
    return { head, tail, omitted: this.#total - head.length - tail.length };
  }

  /** Returns the position in the buffer of the byte at an offset of the stream. */
  #placeOf(offset: number): number {
    const head = this.#headBytes;
    return offset < head ? offset : head + ((offset - head) % (this.#most - head));
  }

  #grow(needed: number): void {
    if (needed <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(
      Math.min(this.#most, Math.max(needed, FIRST_BYTES, this.#bytes.length * 2)),
    );
    this.#bytes.copy(larger);
    this.#bytes = larger;
  }
}

const isContinued = (byte: number | undefined) => byte !== undefined && (byte & 0xc0) === 0x80;

/**
 * Returns the number of bytes of a character that begins with `first`, or 1 if no character does. Source: RFC 3629, section
 * 3.
 */
function lengthOf(first: number): number {
  if (first < 0xc0 || first > 0xf4) return 1;
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
}

/** Returns where the last whole character ends. */
function endOfCharacters(bytes: Buffer): number {
  for (let back = 1; back <= MOST_CONTINUED; back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (!isContinued(byte)) return lengthOf(byte) > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

/** Returns where the first whole character begins. */
function beginOfCharacters(bytes: Buffer): number {
  let at = 0;
  while (at < MOST_CONTINUED && isContinued(bytes[at])) at++;
  return at;
}

/**
 * Yields the members of an answer for one stream, as pieces of JSON. The output is text if all of it is UTF-8, otherwise
 * base64. Where bytes are left out, a line says how many.
 */
export function* membersOf(name: string, output: HeadAndTail): Generator<string> {
  const { head, tail, omitted } = output.parts();
  const mark = Buffer.from(omitted > 0 ? `\n[${omitted} bytes left out]\n` : '');
  const isText = isUtf8(head) && isUtf8(tail);
  yield `,"${name}":"`;
  if (isText) for (const part of [head, mark, tail]) yield* textPieces(part);
  else yield* base64Pieces(Buffer.concat([head, mark, tail]));
  yield `","${name}Encoding":"${isText ? 'utf-8' : 'base64'}","${name}Bytes":${output.total}`;
}

function* textPieces(bytes: Buffer): Generator<string> {
  const decoder = new StringDecoder('utf8');
  for (let at = 0; at < bytes.length; at += PIECE_BYTES)
    yield JSON.stringify(decoder.write(bytes.subarray(at, at + PIECE_BYTES))).slice(1, -1);
}

function* base64Pieces(bytes: Buffer): Generator<string> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES)
    yield bytes.subarray(at, at + PIECE_BYTES).toString('base64');
}
