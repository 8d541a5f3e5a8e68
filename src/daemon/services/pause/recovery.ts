// Undoes a freeze that nobody thaws: a watchdog, and a record for the next daemon.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { EnvdError, isSystemError, messageOf } from '../../../base/errors.ts';
import { exhaustionOf } from '../../linux/system/errno.ts';

/** Time after which everything frozen is thawed, in milliseconds. */
export const WATCHDOG_MS = 10 * 60 * 1000;

/** Calls `expire` once, `timeoutMs` after it was last armed, unless it is disarmed. */
export class Watchdog {
  readonly #timeoutMs: number;
  readonly #expire: () => void;
  #timer: NodeJS.Timeout | null = null;

  constructor(timeoutMs: number, expire: () => void) {
    this.#timeoutMs = timeoutMs;
    this.#expire = expire;
  }

  arm(): void {
    this.disarm();
    this.#timer = setTimeout(this.#expire, this.#timeoutMs);
    this.#timer.unref();
  }

  disarm(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }
}

/**
 * A list of frozen paths in a small file on a volatile file system (`/run`), for the next daemon if this one dies
 * between freeze and thaw.
 */
export class FrozenRecord {
  readonly #file: string;
  readonly #onStale: (error: unknown) => void;
  /** Whether the file may exist. */
  #isThere = true;
  #isStale = false;

  /** `onStale` is called with the first error of a series that leaves paths in the file that are not frozen any more. */
  constructor(file: string, onStale: (error: unknown) => void) {
    this.#file = file;
    this.#onStale = onStale;
  }

  /** The recorded paths; empty if the file is missing or invalid. */
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
   * Replaces the record atomically, before these paths are frozen. Throws when that fails, as nothing would thaw them after
   * a crash; the earlier record stays.
   */
  write(paths: readonly string[]): void {
    try {
      this.#replace(paths);
    } catch (error) {
      const text = `cannot record the freeze in '${this.#file}': ${messageOf(error)}`;
      throw new EnvdError(exhaustionOf(error) ?? 'failed_precondition', text, { cause: error });
    }
  }

  /** Replaces the record after a thaw: these paths are left. That must not fail because of the record. */
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
