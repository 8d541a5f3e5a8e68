import { isSystemError, messageOf } from '../../../base/errors.ts';

/**
 * After how long another attempt is made to reach the service manager, in milliseconds: when its socket is full, and
 * otherwise.
 */
const FULL_MS = 10;
const RETRY_MS = 1000;

type Send = (socket: string) => void;

/** Sends messages to the service manager in order, and tries again when it could not be reached. */
export class ManagerOutbox {
  readonly #socket: string | null;
  readonly #onFailure: (reason: string) => void;
  readonly #waiting: Send[] = [];
  /**
   * Resolved when the socket has room again; null while it has room. The kernel queues 10 messages by default
   * (net.unix.max_dgram_qlen).
   */
  #full: PromiseWithResolvers<void> | null = null;
  #retry: NodeJS.Timeout | null = null;

  /**
   * `socket` is the service manager's; with null nothing is sent. `onFailure` is called when the service manager is not
   * there.
   */
  constructor(socket: string | null, onFailure: (reason: string) => void) {
    this.#socket = socket;
    this.#onFailure = onFailure;
  }

  /** Resolves when everything was taken, or the service manager is not there; null when nothing waits for room. */
  get taken(): Promise<void> | null {
    return this.#full?.promise ?? null;
  }

  send(message: Send): void {
    this.#waiting.push(message);
    if (this.#waiting.length === 1) this.#sendAll();
  }

  /**
   * Blocks the event loop until everything was taken, for a second at most. Call it only while the daemon does not serve yet.
   */
  waitUntilTaken(): void {
    const nothing = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    for (let tries = 0; this.#full !== null && tries < RETRY_MS / FULL_MS; tries++) {
      Atomics.wait(nothing, 0, 0, FULL_MS);
      this.#sendAll();
    }
  }

  #sendAll(): void {
    if (this.#socket === null) this.#waiting.splice(0);
    try {
      for (let send = this.#waiting[0]; send; send = this.#waiting[0]) {
        send(this.#socket ?? '');
        this.#waiting.shift();
      }
      this.#settle();
    } catch (error) {
      if (!isSystemError(error)) throw error;
      const isFull = isSystemError(error, 'EAGAIN');
      if (isFull) this.#full ??= Promise.withResolvers();
      else this.#settle();
      if (!isFull) this.#onFailure(messageOf(error));
      this.#retry ??= setTimeout(this.#sendAgain, isFull ? FULL_MS : RETRY_MS).unref();
    }
  }

  readonly #sendAgain = () => {
    this.#retry = null;
    this.#sendAll();
  };

  #settle(): void {
    this.#full?.resolve();
    this.#full = null;
  }
}
