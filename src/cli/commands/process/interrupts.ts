import process from 'node:process';
import type { Connection } from '../../connection/connection.ts';
import { sendSignal } from './session.ts';

const SIGINT = 2;
const SIGKILL = 9;
const SIGTERM = 15;
/** A signal waits for this time, in milliseconds, until the daemon tells that the process has started. */
const START_MS = 5000;

interface Target {
  /** The process is started by this program, and would go on without it if a signal were not passed on. */
  readonly isStarted: boolean;
}

/**
 * Passes signals of this process on to the remote one. It passes on the first SIGINT, sends SIGKILL at the second, and ends
 * this program at the third. It passes on SIGTERM too.
 */
export class Interrupts implements Disposable {
  readonly #connection: Connection;
  readonly #note: (text: string) => void;
  readonly #isStarted: boolean;
  #pid: number | null = null;
  #count = 0;
  #early: { readonly signal: number; readonly limit: NodeJS.Timeout } | null = null;

  constructor(connection: Connection, note: (text: string) => void, { isStarted }: Target) {
    this.#connection = connection;
    this.#note = note;
    this.#isStarted = isStarted;
    process.on('SIGINT', this.#onInterrupt).on('SIGTERM', this.#onTerminate);
  }

  /** Names the process that gets the signals, also one that has come before this call. */
  aimAt(pid: number): void {
    this.#pid = pid;
    clearTimeout(this.#early?.limit);
    if (this.#early) this.#pass(this.#early.signal);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#early?.limit);
    process.off('SIGINT', this.#onInterrupt).off('SIGTERM', this.#onTerminate);
  }

  readonly #onInterrupt = (): void => {
    this.#count += 1;
    if (this.#count > 2) process.exit(128 + SIGINT);
    if (this.#pid === null) this.#await(SIGINT);
    else if (this.#count === 1) this.#pass(SIGINT);
    else {
      this.#note('killing the process; ^C again leaves it');
      this.#pass(SIGKILL);
    }
  };

  readonly #onTerminate = (): void => {
    if (this.#pid === null) this.#await(SIGTERM);
    else this.#pass(SIGTERM);
  };

  /** Keeps a signal until the process is known. The second signal ends this program, as a shell would show it. */
  #await(signal: number): void {
    const leave = () => process.exit(128 + signal);
    if (!this.#isStarted || this.#early) leave();
    this.#note('ending the process as soon as it has started; ^C again leaves');
    this.#early = { signal, limit: setTimeout(leave, START_MS) };
  }

  #pass(signal: number): void {
    if (this.#pid === null) return;
    void sendSignal(this.#connection, this.#pid, signal).catch(() =>
      this.#note('the signal could not be sent; ^C again'),
    );
  }
}
