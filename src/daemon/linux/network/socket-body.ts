import type { IncomingMessage } from 'node:http';
import { readiness } from '../lanes/readiness.ts';
import { native } from '../system/native.ts';
import { closeAfter, handleOf } from './socket-handle.ts';

/**
 * A request's body, detached from Node's parser so that a pool thread can copy it from the socket to a file. Node reads
 * no more from the connection, which is therefore closed after the response.
 */
export class SocketBody implements Disposable {
  /** Content that Node had already read, in order. */
  readonly before: readonly Buffer[];
  readonly #socket: number;
  #left: number;
  /** May last longer than its caller waits: on a file system that does not answer. */
  #underWay: Promise<unknown> = Promise.resolve();

  private constructor(socket: number, before: readonly Buffer[], left: number) {
    this.#socket = socket;
    this.before = before;
    this.#left = left;
  }

  /** Detaches a body that has not been read from; null, without effect, where that is not possible. */
  static take(request: IncomingMessage): SocketBody | null {
    const length = announcedLength(request);
    const handle = handleOf(request.socket);
    if (length === null || !handle || request.complete || request.readableDidRead) return null;
    const socket = native.duplicate(handle.fd, false);
    handle.readStop();
    // Otherwise reading from the request would resume the socket.
    request._read = () => {};
    const before: Buffer[] = [];
    for (let piece = request.read(); piece !== null; piece = request.read()) before.push(piece);
    const left = before.reduce((rest, { byteLength }) => rest - byteLength, length);
    return new SocketBody(socket, before, left);
  }

  /** Bytes that are still to be moved. */
  get left(): number {
    return this.#left;
  }

  /**
   * Moves received bytes to an open file, or discards them if `file` is null; resolves with their number, 0 if none
   * have arrived. Rejects with ECONNRESET when the connection has ended, and with write(2)'s errors.
   */
  async moveTo(file: number | null, position: number): Promise<number> {
    const job = native.receive(this.#socket, file ?? -1, position, this.#left);
    this.#underWay = Promise.allSettled([this.#underWay, job]);
    const moved = await job;
    this.#left -= moved;
    return moved;
  }

  /** Resolves when bytes have arrived or the connection has ended; throws the reason of `signal`. */
  arrival(signal: AbortSignal): Promise<void> {
    return readiness(this.#socket, false, signal);
  }

  /** Closes it when the last job has returned: until then the number must not be another connection's. */
  [Symbol.dispose](): void {
    closeAfter(this.#underWay, this.#socket);
  }
}

/** Content-Length; null for a chunked body, which only the parser can decode. */
function announcedLength({ headers }: IncomingMessage): number | null {
  const { 'content-length': length, 'transfer-encoding': coding } = headers;
  return length === undefined || coding !== undefined ? null : Number(length);
}
