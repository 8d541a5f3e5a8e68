import { callErrorOf } from './call-error.ts';
import type { DaemonClient } from './daemon-client.ts';
import { base64Of } from './envelopes.ts';

/** Most bytes of one call. */
const PIECE_BYTES = 64 * 1024;
/** Most typed bytes that wait for a process that does not read. */
const MAX_WAITING = 8 * 1024 * 1024;
const RETRY_PAUSE_MS = 300;

/**
 * Sends what is typed to one process in order: one call is under way at a time, and what is typed meanwhile goes with the next one. A
 * browser would send several calls over different connections, where they arrive in any order.
 */
export class TypedInput {
  readonly #daemon: DaemonClient;
  readonly #pid: number;
  readonly #stream: 'stdin' | 'pty';
  readonly #onProblem: (message: string) => void;
  #waiting: Uint8Array[] = [];
  #length = 0;
  #isSending = false;
  #hasEnded = false;

  constructor(
    daemon: DaemonClient,
    pid: number,
    stream: 'stdin' | 'pty',
    onProblem: (message: string) => void,
  ) {
    this.#daemon = daemon;
    this.#pid = pid;
    this.#stream = stream;
    this.#onProblem = onProblem;
  }

  type(bytes: Uint8Array): void {
    if (this.#hasEnded || bytes.length === 0) return;
    if (this.#length + bytes.length > MAX_WAITING) {
      this.#onProblem('the process does not read; what was typed is dropped');
      return;
    }
    this.#waiting.push(bytes);
    this.#length += bytes.length;
    if (!this.#isSending) void this.#drain();
  }

  end(): void {
    this.#hasEnded = true;
  }

  async #drain(): Promise<void> {
    this.#isSending = true;
    while (this.#length > 0 && !this.#hasEnded) {
      const bytes = this.#next();
      await this.#send(base64Of(bytes), bytes.length);
    }
    this.#isSending = false;
  }

  /** The next piece of what waits. */
  #next(): Uint8Array {
    const all = new Uint8Array(this.#length);
    let at = 0;
    for (const piece of this.#waiting) {
      all.set(piece, at);
      at += piece.length;
    }
    const rest = all.subarray(PIECE_BYTES);
    this.#waiting = rest.length > 0 ? [rest] : [];
    this.#length = rest.length;
    return all.subarray(0, PIECE_BYTES);
  }

  /** Sends a piece at most once, and tries again only what has certainly not arrived. */
  async #send(data: string, length: number): Promise<void> {
    const message = { process: { pid: this.#pid }, input: { [this.#stream]: data } };
    while (!this.#hasEnded) {
      try {
        // Without a time limit: the call waits while the process does not read.
        await this.#daemon.unary('process.Process/SendInput', message, { timeoutMs: 0 });
        return;
      } catch (thrown) {
        const error = callErrorOf(thrown);
        if (error.mayHaveArrived) return this.#onProblem(`${length} bytes of input may be lost`);
        if (!error.isLost) {
          this.#hasEnded = true;
          return error.code === 'not_found' ? undefined : this.#onProblem(error.message);
        }
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_PAUSE_MS));
    }
  }
}
