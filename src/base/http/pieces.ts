import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { freeBuffer } from '../buffers.ts';

const BLANK_LINE = Buffer.from('\r\n\r\n');
/** No request is shorter: it is `GET / HTTP/1.1` and a blank line. */
const LEAST_REQUEST = 18;
const [CR, LF] = [13, 10];
/** What is smaller is left to the garbage collector. */
const KEPT_BYTES = 16 * 1024;

/** Decides about the bytes of a connection. */
export interface Judge {
  /** Returns false to drop what follows, for example because the connection was closed. */
  mayBegin(): boolean;
}

/**
 * Passes the bytes of a connection to Node's HTTP parser in pieces: each completes the head of at most one request. Node reads 64 KiB
 * at once, which can be thousands of requests, and its parser cannot be stopped in between. Between two pieces it can.
 *
 * A piece ends after a blank line, because every head ends with one. The bytes of a body with `Content-Length` are not searched.
 */
export class Pieces {
  readonly #socket: Socket;
  readonly #judge: Judge;
  readonly #parse: (bytes: Buffer) => void;
  #latest: IncomingMessage | null = null;
  #bodyLeft = 0;
  /** Whether the parser wants no more bytes, because it refused some. */
  #isRefused = false;
  #isUpgraded = false;

  /** The parser must be attached to the connection, which Node reads as it reads any stream: by its event `data`. */
  constructor(socket: Socket, judge: Judge) {
    this.#socket = socket;
    this.#judge = judge;
    const [parse] = socket.listeners('data') as ((bytes: Buffer) => void)[];
    if (!parse) throw new Error('connection has no parser');
    this.#parse = parse;
    socket.removeListener('data', parse).on('data', this.#read);
  }

  /** Must be called when the parser has read the head of a request. */
  begin(request: IncomingMessage): void {
    this.#latest = request;
    this.#bodyLeft = Number(request.headers['content-length'] ?? 0);
  }

  /** Must be called when the parser has failed: later bytes are dropped. */
  refuse(): void {
    this.#isRefused = true;
  }

  /** Must be called when the connection carries another protocol: later bytes stay in the socket. */
  release(): void {
    this.#isUpgraded = true;
    this.#socket.removeListener('data', this.#read);
  }

  readonly #read = (bytes: Buffer): void => {
    if (this.#pass(bytes) && bytes.length > KEPT_BYTES) freeBuffer(bytes);
  };

  /** Returns whether the bytes are needed no more: the parser copies what it hands on. */
  #pass(bytes: Buffer): boolean {
    const socket = this.#socket;
    const breaks = lineBreaksOf(bytes);
    for (let at = 0; at < bytes.length; ) {
      if (this.#isRefused || socket.destroyed || socket.writableEnded) return true;
      if (this.#isUpgraded || socket.isPaused()) {
        socket.unshift(bytes.subarray(at));
        return false;
      }
      const isBetween = this.#latest?.complete ?? true;
      if (isBetween && !this.#judge.mayBegin()) return true;
      const end = this.#endOfPiece(bytes, at, breaks);
      this.#parse.call(socket, end - at === bytes.length ? bytes : bytes.subarray(at, end));
      at = end;
    }
    return !this.#isUpgraded;
  }

  #endOfPiece(bytes: Buffer, at: number, breaks: number): number {
    if (this.#bodyLeft > 0) {
      const end = Math.min(at + this.#bodyLeft, bytes.length);
      this.#bodyLeft -= end - at;
      return end;
    }
    // They may complete a blank line that the bytes before have begun.
    if (at < breaks) return breaks;
    // At first the rest of a head may come, which can be short.
    const from = at === breaks ? at : at + LEAST_REQUEST - BLANK_LINE.length;
    const blank = bytes.indexOf(BLANK_LINE, from);
    return blank === -1 ? bytes.length : blank + BLANK_LINE.length;
  }
}

/** Returns the number of CR and LF at the begin. */
function lineBreaksOf(bytes: Buffer): number {
  let count = 0;
  while (bytes[count] === CR || bytes[count] === LF) count++;
  return count;
}
