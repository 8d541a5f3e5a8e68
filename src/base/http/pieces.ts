import { AsyncLocalStorage } from 'node:async_hooks';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import process from 'node:process';
import { freeBuffer } from '../buffers.ts';

const BLANK_LINE = Buffer.from('\r\n\r\n');
const [CR, LF] = [13, 10];
/** What is smaller is left to the garbage collector. */
const KEPT_BYTES = 16 * 1024;
/** So many bytes of a connection may wait for the response in progress. */
const MOST_WAITING_BYTES = 16 * 1024;

/** What serves the requests of a connection. */
interface Server {
  /** Whether a response is in progress. */
  readonly isBusy: boolean;
  /** Is called when more bytes wait for the response in progress than may wait. */
  overflow(): void;
}

/**
 * Passes the bytes of a connection to Node's HTTP parser in pieces: each completes the head of at most one request, and the next one
 * waits for the response. Node reads 64 KiB at once, which can be thousands of requests, and its parser cannot be stopped in between.
 * Between two pieces it can.
 *
 * A piece ends after a blank line, because every head ends with one. Bodies are not searched: their framing says where they end. What
 * the parser would refuse may be cut anywhere.
 */
export class Pieces {
  readonly #socket: Socket;
  readonly #server: Server;
  readonly #parse: (bytes: Buffer) => void;
  /** So many bytes are left of a body with `Content-Length`. */
  #bodyLeft = 0;
  #chunks: Chunks | null = null;
  /** Bytes behind the request that is being served. */
  #waiting: Buffer | null = null;
  /** Whether the parser wants no more bytes, because it refused some. */
  #isRefused = false;
  #isUpgraded = false;

  /** The parser must be attached to the connection, which Node reads as it reads any stream: by its event `data`. */
  constructor(socket: Socket, server: Server) {
    this.#socket = socket;
    this.#server = server;
    const [parse] = socket.listeners('data') as ((bytes: Buffer) => void)[];
    if (!parse) throw new Error('connection has no parser');
    this.#parse = parse;
    socket.removeListener('data', parse).on('data', this.#read);
  }

  /** Whether bytes wait for a response. */
  get isWaiting(): boolean {
    return this.#waiting !== null;
  }

  /** Must be called when the parser has read the head of a request. */
  begin({ headers }: IncomingMessage): void {
    if (headers['transfer-encoding'] !== undefined) this.#chunks = new Chunks();
    else this.#bodyLeft = Number(headers['content-length'] ?? 0);
  }

  /** Must be called when a response has ended: passes on what waits. */
  next(): void {
    const bytes = this.#waiting;
    this.#waiting = null;
    if (bytes !== null) this.#read(bytes);
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

  /** It runs in the asynchronous context of the connection, as Node's parser does. */
  readonly #read = AsyncLocalStorage.bind((bytes: Buffer): void => {
    const socket = this.#socket;
    for (let at = 0; at < bytes.length; ) {
      if (this.#isRefused || socket.destroyed || socket.writableEnded) break;
      if (this.#isUpgraded || socket.isPaused()) {
        socket.unshift(bytes.subarray(at));
        return;
      }
      if (this.#mustWait) {
        this.#wait(bytes.subarray(at));
        break;
      }
      const end = this.#endOfPiece(bytes, at);
      const piece = end - at === bytes.length ? bytes : bytes.subarray(at, end);
      try {
        this.#parse.call(socket, piece);
      } catch (error) {
        // Who serves the connection is found by the asynchronous context, which a call that throws leaves too early.
        process.nextTick(() => {
          throw error;
        });
        return;
      }
      at = end;
    }
    // The parser copies the bytes of bodies. A test compares those that arrive, in case a later version of Node does not.
    if (bytes.length > KEPT_BYTES && !this.#isUpgraded && !this.#isRefused) freeBuffer(bytes);
  });

  /** Whether the next byte belongs to a request behind the one that is being served. */
  get #mustWait(): boolean {
    const isBody = this.#bodyLeft > 0 || this.#chunks !== null;
    return this.#waiting !== null || (this.#server.isBusy && !isBody);
  }

  #wait(bytes: Buffer): void {
    const length = bytes.length + (this.#waiting?.length ?? 0);
    if (length > MOST_WAITING_BYTES) this.#server.overflow();
    else this.#waiting = Buffer.concat(this.#waiting === null ? [bytes] : [this.#waiting, bytes]);
  }

  #endOfPiece(bytes: Buffer, at: number): number {
    if (this.#bodyLeft > 0) {
      const end = Math.min(at + this.#bodyLeft, bytes.length);
      this.#bodyLeft -= end - at;
      return end;
    }
    if (this.#chunks !== null) {
      const end = this.#chunks.endIn(bytes, at);
      if (this.#chunks.isComplete) this.#chunks = null;
      return end;
    }
    // They may complete a blank line that the bytes before have begun, and a body may follow.
    const breaks = endOfBreaks(bytes, at, at === 0 ? BLANK_LINE.length : bytes.length);
    if (breaks > at) return breaks;
    const blank = bytes.indexOf(BLANK_LINE, at);
    return blank === -1 ? bytes.length : blank + BLANK_LINE.length;
  }
}

/** A piece has at most so many chunks, because each becomes an object, however small it is. */
const CHUNKS_OF_PIECE = 64;
/** Follows a body with `Transfer-Encoding: chunked` to the blank line behind its trailers. Source: RFC 9112, section 7.1. */
class Chunks {
  /** So many bytes are left of a chunk, with the line break behind it. */
  #left = 0;
  /** What is known of the line that is being read: its first byte, and the size at its begin. */
  #first: number | undefined;
  #size = 0;
  #isSize = true;
  #isTrailer = false;
  #isComplete = false;

  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** Returns the position behind the body, behind so many lines, or the length of the bytes. */
  endIn(bytes: Buffer, start: number): number {
    let at = start;
    for (let lines = 0; at < bytes.length && !this.#isComplete && lines < CHUNKS_OF_PIECE; ) {
      if (this.#left === 0) {
        at = this.#readLine(bytes, at);
        lines++;
      }
      const data = Math.min(this.#left, bytes.length - at);
      this.#left -= data;
      at += data;
    }
    return at;
  }

  /** Returns the position behind the line, or the length of the bytes. */
  #readLine(bytes: Buffer, start: number): number {
    const lf = bytes.indexOf(LF, start);
    const end = lf === -1 ? bytes.length : lf + 1;
    this.#first ??= bytes[start];
    for (let at = start; at < end && this.#isSize; at++) this.#readDigit(bytes[at]);
    if (lf !== -1) this.#endLine();
    return end;
  }

  #readDigit(byte = 0): void {
    const digit = Number.parseInt(String.fromCharCode(byte), 16);
    this.#isSize = !Number.isNaN(digit);
    if (this.#isSize) this.#size = this.#size * 16 + digit;
  }

  #endLine(): void {
    if (this.#isTrailer) this.#isComplete = this.#first === CR || this.#first === LF;
    else if (this.#size === 0) this.#isTrailer = true;
    else this.#left = this.#size + '\r\n'.length;
    this.#first = undefined;
    this.#size = 0;
    this.#isSize = true;
  }
}

/** Returns the position of the first byte that is no CR or LF, or `most`. */
function endOfBreaks(bytes: Buffer, start: number, most: number): number {
  let at = start;
  while (at < most && (bytes[at] === CR || bytes[at] === LF)) at++;
  return at;
}
