import { setTimeout as delay } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Connection } from '../connection/connection.ts';
import { networkCodeOf } from '../connection/failures.ts';
import { selectPid } from './selector.ts';

/** Most bytes of one call. */
const PIECE_BYTES = 64 * 1024;
/** Most typed bytes that wait for a process that does not read. */
const MAX_WAITING = 8 * 1024 * 1024;
const RETRY_PAUSE_MS = 300;

/** Errors of a connection that was never made: what was to be sent has not arrived. */
const NOT_SENT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'];
/** Answers of a process that takes no input any more. */
const NO_INPUT = [Code.NotFound, Code.FailedPrecondition, Code.InvalidArgument];

/** What became of a piece of input. */
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

  /** `onLost`: called with the bytes that a lost connection may have swallowed. */
  constructor(connection: Connection, pid: number, kind: 'stdin' | 'pty', onLost: (bytes: number) => void) {
    this.#connection = connection;
    this.#pid = pid;
    this.#kind = kind;
    this.#onLost = onLost;
  }

  /** Sends what a pipe gives, as fast as the process reads, then closes its input. Throws `Failure`. */
  async pipe(source: AsyncIterable<Buffer | string>): Promise<void> {
    for await (const piece of source) {
      if (!(await this.#deliver(Buffer.from(piece)))) return;
    }
    await this.close();
  }

  /** Queues what was typed. Returns false when too much waits already, and drops it. */
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
      // It has ended meanwhile, or a daemon without this call leaves its input open.
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

  /** Whether the process goes on reading. */
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

  /** Sends a piece at most once, and tries again only what has certainly not arrived. Throws `Failure`. */
  async #send(value: Buffer): Promise<Delivery> {
    const input = { input: { case: this.#kind, value } };
    for (;;) {
      try {
        // Without a time limit: the call waits while the process does not read.
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

/** What an error of a call says about the piece: `again`, it has certainly not arrived; `refused`, it never will. */
function outcomeOf(error: unknown): 'again' | 'unknown' | 'ended' | 'refused' {
  const network = networkCodeOf(error);
  if (network !== null) return NOT_SENT.includes(network) ? 'again' : 'unknown';
  if (!(error instanceof ConnectError)) return 'refused';
  if (NO_INPUT.includes(error.code)) return 'ended';
  // A daemon that is being replaced, or that is frozen, has taken nothing.
  return error.code === Code.Unavailable ? 'again' : 'refused';
}
