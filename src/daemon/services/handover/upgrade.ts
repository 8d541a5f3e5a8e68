import { closeSync } from 'node:fs';
import { messageOf } from '../../../base/errors.ts';
import { debug } from '../../../base/program/debug.ts';
import { type Command, tryProgram } from '../../linux/processes/program.ts';
import { writeState } from './state.ts';

/** The flag that makes the daemon run only the trial. */
const TRIAL_FLAG = '--try-upgrade';

export interface UpgradeOptions {
  /** The program now at the path of this one. */
  readonly command: Command;
  /** The version of the build. */
  readonly version: string;
  /** How long the new program may take to load and to read the version of the state, in milliseconds. */
  readonly trialMs: number;
  /** Excludes the operations before a pause. Throws `unavailable` while one is under way. */
  readonly lock: () => Disposable;
  /** Throws when the program cannot be replaced now. */
  readonly assertPossible: () => void;
  /** Replaces the program; returns or throws only on failure. */
  readonly replace: () => Promise<void>;
  readonly onFailure: (reason: string) => void;
}

/** Replaces the program of the daemon by the one now at its path. */
export class Upgrade {
  readonly #options: UpgradeOptions;

  constructor(options: UpgradeOptions) {
    this.#options = options;
  }

  /**
   * Tries the program: it must load everything and read the version of the state. The result replaces this program, and
   * must be called. Throws `failed_precondition` when the program cannot take over, `unavailable` while another operation
   * holds the lock.
   */
  async prepare(): Promise<() => void> {
    const { command, version, trialMs, lock, assertPossible } = this.#options;
    assertPossible();
    const held = lock();
    try {
      const state = writeState(version, null);
      try {
        await tryProgram([...command, TRIAL_FLAG], state, trialMs);
        debug('handover', 'the next program can take over');
      } finally {
        closeSync(state);
      }
      assertPossible();
    } catch (error) {
      held[Symbol.dispose]();
      throw error;
    }
    return () => void this.#replace(held);
  }

  /** Tries the program and replaces this one, if it can take over. */
  async start(): Promise<void> {
    try {
      const replace = await this.prepare();
      replace();
    } catch (error) {
      this.#options.onFailure(messageOf(error));
    }
  }

  async #replace(held: Disposable): Promise<void> {
    try {
      await this.#options.replace();
    } catch (error) {
      this.#options.onFailure(messageOf(error));
    } finally {
      held[Symbol.dispose]();
    }
  }
}
