import type { FastifyReply } from 'fastify';
import type { EnvdError } from '../../../../base/errors.ts';
import type { Kept, Unread } from '../../../../base/unread.ts';

/** What an upload buffers: pieces that wait for the disk, a parser, a decoder. */
const UPLOAD_BYTES = 128 * 1024;

/** An upload as one of the requests that together may take so much memory. Its connection is closed when it is dropped. */
export class UploadMemory implements Kept, Disposable {
  readonly #reply: FastifyReply;
  readonly #requests: Unread;
  #seen = 0;

  constructor(reply: FastifyReply, requests: Unread) {
    this.#reply = reply;
    this.#requests = requests;
    requests.set(this, UPLOAD_BYTES);
  }

  hasMoved(): boolean {
    const { bytesRead } = this.#reply.request.raw.socket;
    const moved = bytesRead !== this.#seen;
    this.#seen = bytesRead;
    return moved;
  }

  drop(reason: EnvdError): void {
    this[Symbol.dispose]();
    this.#reply.request.failure = reason;
    this.#reply.raw.destroy();
  }

  [Symbol.dispose](): void {
    this.#requests.set(this, 0);
  }
}
