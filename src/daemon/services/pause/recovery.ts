import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { EnvdError, isSystemError, messageOf } from '../../../base/errors.ts';
import { exhaustionOf } from '../../linux/system/errno.ts';

/** After how long everything that is frozen is thawed, in milliseconds. */
const WATCHDOG_MS = 10 * 60 * 1000;

/** Thaws `WATCHDOG_MS` after it was last armed, unless it is disarmed; tries again as long as that fails. */
export class Watchdog {
  thaws = 0;
  readonly #thaw: () => void | Promise<void>;
  readonly #onThaw: (error: unknown) => void;
  #timer: NodeJS.Timeout | null = null;

  /** `onThaw` is called after each attempt, with null or the error. */
  constructor(thaw: () => void | Promise<void>, onThaw: (error: unknown) => void) {
    this.#thaw = thaw;
    this.#onThaw = onThaw;
  }

  arm(): void {
    this.disarm();
    this.#timer = setTimeout(() => void this.#expire(), WATCHDOG_MS);
    this.#timer.unref();
  }

  disarm(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  async #expire(): Promise<void> {
    try {
      await this.#thaw();
      this.thaws++;
      this.#onThaw(null);
    } catch (error) {
      this.arm();
      this.#onThaw(error);
    }
  }
}

/**
 * Keeps a list of frozen paths in a small file on a volatile file system (`/run`). The next daemon reads it if this one dies
 * between a freeze and the thaw.
 */
export class FrozenRecord {
  readonly #file: string;
  readonly #onStale: (error: unknown) => void;
  /** Whether the file may exist. */
  #isThere = true;
  /** Whether the last update failed. */
  #isStale = false;

  /** `onStale` is called with the first error of a series after which the file has paths that are not frozen any more. */
  constructor(file: string, onStale: (error: unknown) => void) {
    this.#file = file;
    this.#onStale = onStale;
  }

  /** Returns the recorded paths; none if the file is missing or invalid. */
  read(): string[] {
    try {
      const paths: unknown = JSON.parse(readFileSync(this.#file, 'utf8'));
      return Array.isArray(paths) ? paths.filter((path) => typeof path === 'string') : [];
    } catch (error) {
      if (error instanceof SyntaxError || isSystemError(error, 'ENOENT')) return [];
      throw error;
    }
  }

  /**
   * Replaces the record atomically. Call it before these paths are frozen. Throws when that fails, because nothing would thaw
   * the paths after a crash; the earlier record stays then.
   */
  write(paths: readonly string[]): void {
    try {
      this.#replace(paths);
    } catch (error) {
      const text = `cannot record the freeze in '${this.#file}': ${messageOf(error)}`;
      throw new EnvdError(exhaustionOf(error) ?? 'failed_precondition', text, { cause: error });
    }
  }

  /** Replaces the record after a thaw by the paths that are still frozen. Never throws, because the thaw has succeeded. */
  update(paths: readonly string[]): void {
    try {
      if (paths.length > 0) this.#replace(paths);
      else if (this.#isThere) rmSync(this.#file, { force: true });
      this.#isThere = paths.length > 0;
      this.#isStale = false;
    } catch (error) {
      if (!this.#isStale) this.#onStale(error);
      this.#isStale = true;
    }
  }

  #replace(paths: readonly string[]): void {
    const staged = `${this.#file}.new`;
    try {
      mkdirSync(dirname(this.#file), { recursive: true, mode: 0o700 });
      writeFileSync(staged, JSON.stringify(paths), { mode: 0o600 });
      renameSync(staged, this.#file);
      this.#isThere = true;
    } catch (error) {
      rmSync(staged, { force: true });
      throw error;
    }
  }
}
