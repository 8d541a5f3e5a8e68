import { closeSync } from 'node:fs';
import type { Logger } from 'pino';
import { messageOf } from '../../../base/errors.ts';
import type { ExclusiveLock } from '../../../base/exclusion.ts';
import { debug } from '../../../base/program/debug.ts';
import { type Command, tryProgram } from '../../linux/processes/program.ts';
import type { Replacement } from './replacement.ts';
import { writeVersion } from './state.ts';

/** The flag that makes the daemon run only the trial. */
const TRIAL_FLAG = '--try-upgrade';

export interface UpgradeOptions {
  /** The program now at the path of this one. */
  readonly command: Command;
  /** The version of the build. */
  readonly version: string;
  /** How long the new program may take to load and to read the version of the state, in milliseconds. */
  readonly trialMs: number;
}

/** Replaces the program of the daemon by the one now at its path. */
export class Upgrade {
  readonly #options: UpgradeOptions;
  readonly #lock: ExclusiveLock;
  readonly #replacement: Pick<Replacement, 'assertPossible' | 'replace'>;
  readonly #logger: Pick<Logger, 'error'>;

  /** `lock` excludes the operations before a pause. */
  constructor(
    options: UpgradeOptions,
    lock: ExclusiveLock,
    replacement: Pick<Replacement, 'assertPossible' | 'replace'>,
    logger: Pick<Logger, 'error'>,
  ) {
    this.#options = options;
    this.#lock = lock;
    this.#replacement = replacement;
    this.#logger = logger;
  }

  /**
   * Tries the program: it must load everything and read the version of the state. The result replaces this program, and
   * must be called. Throws `failed_precondition` when the program cannot take over, `unavailable` while another operation
   * holds the lock.
   */
  async prepare(): Promise<() => void> {
    const { command, version, trialMs } = this.#options;
    this.#replacement.assertPossible();
    const held = this.#lock.acquire('upgrade');
    try {
      const state = writeVersion(version);
      try {
        await tryProgram([...command, TRIAL_FLAG], state, trialMs);
        debug('handover', 'the next program can take over');
      } finally {
        closeSync(state);
      }
      this.#replacement.assertPossible();
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
      this.#report(error);
    }
  }

  async #replace(held: Disposable): Promise<void> {
    try {
      await this.#replacement.replace();
    } catch (error) {
      this.#report(error);
    } finally {
      held[Symbol.dispose]();
    }
  }

  #report(error: unknown): void {
    this.#logger.error({ reason: messageOf(error) }, 'cannot upgrade');
  }
}
