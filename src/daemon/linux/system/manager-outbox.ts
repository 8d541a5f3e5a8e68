import { isSystemError, messageOf } from '../../../base/errors.ts';

/** Intervals of attempts to reach the service manager, in milliseconds: when its socket is full, and otherwise. */
const FULL_MS = 10;
const RETRY_MS = 1000;

type Send = (socket: string) => void;

/** What the service manager is told, in order, and again when it could not be reached. */
export class ManagerOutbox {
  readonly #socket: string | null;
  readonly #onFailure: (reason: string) => void;
  readonly #waiting: Send[] = [];
  /** While its socket is full: the kernel takes 10 messages by default, net.unix.max_dgram_qlen. */
  #full: PromiseWithResolvers<void> | null = null;
  #retry: NodeJS.Timeout | null = null;

  /** `socket`: of the service manager, or null: nobody is told. `onFailure`: told when it is not there. */
  constructor(socket: string | null, onFailure: (reason: string) => void) {
    this.#socket = socket;
    this.#onFailure = onFailure;
  }

  /** Resolves when all has been taken, or the service manager is not there; null: nothing waits for room. */
  get taken(): Promise<void> | null {
    return this.#full?.promise ?? null;
  }

  tell(send: Send): void {
    this.#waiting.push(send);
    if (this.#waiting.length === 1) this.#sendAll();
  }

  /** Blocks until all has been taken, for a second at most: for a daemon that does not serve yet. */
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
