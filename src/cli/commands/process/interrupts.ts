import process from 'node:process';
import type { Connection } from '../../connection/connection.ts';
import { sendSignal } from './session.ts';

const SIGINT = 2;
const SIGKILL = 9;
const SIGTERM = 15;
/** A shell shows this exit code for a program that SIGINT has ended (128 and 2). */
const LEFT = 130;

/**
 * Passes signals of this process on to the remote one. It passes on the first SIGINT, sends SIGKILL at the second, and ends
 * this program at the third. It passes on SIGTERM too.
 */
export class Interrupts implements Disposable {
  readonly #connection: Connection;
  readonly #note: (text: string) => void;
  #pid: number | null = null;
  #count = 0;

  constructor(connection: Connection, note: (text: string) => void) {
    this.#connection = connection;
    this.#note = note;
    process.on('SIGINT', this.#onInterrupt).on('SIGTERM', this.#onTerminate);
  }

  /** Names the process that gets the signals. Before this call, a signal ends this program. */
  aimAt(pid: number): void {
    this.#pid = pid;
  }

  [Symbol.dispose](): void {
    process.off('SIGINT', this.#onInterrupt).off('SIGTERM', this.#onTerminate);
  }

  readonly #onInterrupt = (): void => {
    this.#count += 1;
    if (this.#pid === null || this.#count > 2) process.exit(LEFT);
    if (this.#count === 2) this.#note('killing the process; ^C again leaves it');
    this.#pass(this.#count === 1 ? SIGINT : SIGKILL);
  };

  readonly #onTerminate = (): void => {
    if (this.#pid === null) process.exit(128 + SIGTERM);
    this.#pass(SIGTERM);
  };

  #pass(signal: number): void {
    if (this.#pid === null) return;
    void sendSignal(this.#connection, this.#pid, signal).catch(() =>
      this.#note('the signal could not be sent; ^C again'),
    );
  }
}
