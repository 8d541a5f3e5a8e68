import { setTimeout as delay } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Connection } from '../connection/connection.ts';
import { networkCodeOf } from '../connection/failures.ts';
import { selectPid } from './selector.ts';

/** One call sends at most this many bytes. */
const PIECE_BYTES = 64 * 1024;
/** At most this many typed bytes wait for a process that does not read. */
const MAX_WAITING = 8 * 1024 * 1024;
const RETRY_PAUSE_MS = 300;

/** With these errors, no connection was made, so the input has not arrived. */
const NOT_SENT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'];
/** A process that no longer takes input is answered with these codes. */
const NO_INPUT = [Code.NotFound, Code.FailedPrecondition, Code.InvalidArgument];

/** The result of sending a piece of input. */
type Delivery = 'delivered' | 'unknown' | 'ended';

/** Sends input to one process, piece by piece, in order. */
export class ProcessInput {
  readonly #connection: Connection;
  readonly #pid: number;
  readonly #kind: 'stdin' | 'pty';
  readonly #onLost: (bytes: number) => void;
  #waiting: Buffer[] = [];
  #length = 0;
  #sending: Promise<void> | null = null;
  #hasEnded = false;

  /** @param onLost is called with the number of bytes that may have been lost with a connection */
  constructor(connection: Connection, pid: number, kind: 'stdin' | 'pty', onLost: (bytes: number) => void) {
    this.#connection = connection;
    this.#pid = pid;
    this.#kind = kind;
    this.#onLost = onLost;
  }

  /** Sends the data of a pipe as fast as the process reads it, then closes its input. Throws `Failure`. */
  async pipe(source: AsyncIterable<Buffer | string>): Promise<void> {
    for await (const piece of source) {
      if (!(await this.#deliver(Buffer.from(piece)))) return;
    }
    await this.close();
  }

  /** Queues typed input. If too much waits already, drops it and returns false. */
  type(bytes: Buffer): boolean {
    if (bytes.length === 0 || this.#hasEnded) return true;
    if (this.#length + bytes.length > MAX_WAITING) return false;
    this.#waiting.push(bytes);
    this.#length += bytes.length;
    this.#sending ??= this.#drain();
    return true;
  }

  /** Closes the input of a process without a terminal. */
  async close(): Promise<void> {
    const process = selectPid(this.#pid);
    await this.#connection.processes.closeStdin({ process }).catch(() => {
      // The process has ended meanwhile, or a daemon without this call leaves the input open.
    });
  }

  async #drain(): Promise<void> {
    while (this.#length > 0 && !this.#hasEnded) {
      const bytes = Buffer.concat(this.#waiting);
      this.#waiting = [];
      this.#length = 0;
      await this.#deliver(bytes).catch(() => {
        this.#hasEnded = true;
      });
    }
    this.#sending = null;
  }

  /** Returns whether the process still reads its input. */
  async #deliver(bytes: Buffer): Promise<boolean> {
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
      const piece = bytes.subarray(at, at + PIECE_BYTES);
      const delivery = await this.#send(piece);
      if (delivery === 'unknown') this.#onLost(piece.length);
      this.#hasEnded ||= delivery === 'ended';
      if (this.#hasEnded) return false;
    }
    return true;
  }

  /** Sends a piece at most once. Tries again only if the piece has certainly not arrived. Throws `Failure`. */
  async #send(value: Buffer): Promise<Delivery> {
    const input = { input: { case: this.#kind, value } };
    for (;;) {
      try {
        // The call has no time limit, because it waits while the process does not read.
        await this.#connection.processes.sendInput({ process: selectPid(this.#pid), input });
        return 'delivered';
      } catch (error) {
        const outcome = outcomeOf(error);
        if (outcome === 'refused') throw await this.#connection.failure(error);
        if (outcome !== 'again') return outcome;
      }
      await delay(RETRY_PAUSE_MS);
    }
  }
}

/** Says what an error means for the piece: with `again` it has certainly not arrived, and with `refused` it never will. */
function outcomeOf(error: unknown): 'again' | 'unknown' | 'ended' | 'refused' {
  const network = networkCodeOf(error);
  if (network !== null) return NOT_SENT.includes(network) ? 'again' : 'unknown';
  if (!(error instanceof ConnectError)) return 'refused';
  if (NO_INPUT.includes(error.code)) return 'ended';
  // A daemon that is frozen or being replaced has not taken the piece.
  return error.code === Code.Unavailable ? 'again' : 'refused';
}
