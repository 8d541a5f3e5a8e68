import { closeSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { isSystemError } from '../../../base/errors.ts';
import type { OpenFile } from '../files/open-file.ts';
import { native } from '../system/native.ts';
import { readiness } from '../system/readiness.ts';

/**
 * The connection of a response, for a body that a pool thread sends from a file. The kernel must have taken everything that
 * was written to the response before, and nothing may be written meanwhile.
 */
export class SocketOutput implements Disposable {
  readonly #socket: number;
  #sent = 0;
  /** The last job. On a file system that does not answer it lasts longer than its caller waits. */
  #underWay: Promise<unknown> = Promise.resolve();

  private constructor(socket: number) {
    this.#socket = socket;
  }

  /** Returns null when the connection is closed, or its descriptor was not found; see `native.duplicateConnection`. */
  static of({ socket }: ServerResponse): SocketOutput | null {
    const { localAddress, localPort, remoteAddress, remotePort } = socket ?? {};
    if (!socket || socket.destroyed || localAddress === undefined || remoteAddress === undefined) return null;
    const descriptor = native.duplicateConnection(
      localAddress,
      String(localPort),
      remoteAddress,
      String(remotePort),
    );
    return descriptor === null ? null : new SocketOutput(descriptor);
  }

  get sent(): number {
    return this.#sent;
  }

  /**
   * Sends the bytes of `file` from `start` up to, excluding, `end`; no thread waits for the client. Resolves with the
   * position of the first byte that was not sent: less than `end` if the file has been truncated or does not support it.
   * Throws the reason of `signal`, and sendfile(2)'s errors.
   */
  async send(file: OpenFile, start: number, end: number, signal: AbortSignal): Promise<number> {
    let position = start;
    while (position < end) {
      signal.throwIfAborted();
      const moved = await this.#move(file, position, end - position);
      if (moved < 0) return position;
      position += moved;
      this.#sent += moved;
      if (position < end) await readiness(this.#socket, true, signal);
    }
    return position;
  }

  /** Closes the descriptor when the last job has returned, because the job would send to whatever gets the same number. */
  [Symbol.dispose](): void {
    const close = () => closeSync(this.#socket);
    this.#underWay.then(close, close);
  }

  async #move(file: OpenFile, position: number, length: number): Promise<number> {
    try {
      return await file.run(() => {
        const job = native.sendFile(this.#socket, file.fd, position, length);
        this.#underWay = job;
        return job;
      });
    } catch (error) {
      if (isSystemError(error, 'EINVAL', 'ENOSYS')) return -1;
      throw error;
    }
  }
}
