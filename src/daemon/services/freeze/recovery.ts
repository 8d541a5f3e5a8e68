// Undoes a freeze that nobody thaws: a watchdog, and a record for the next daemon.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { isSystemError } from '../../../base/errors.ts';

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
  /** Whether the file may exist. */
  #isThere = true;

  constructor(file: string) {
    this.#file = file;
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

  /** Replaces the record atomically. */
  write(paths: readonly string[]): void {
    if (paths.length === 0) {
      if (this.#isThere) rmSync(this.#file, { force: true });
      this.#isThere = false;
      return;
    }
    this.#isThere = true;
    const staged = `${this.#file}.new`;
    mkdirSync(dirname(this.#file), { recursive: true, mode: 0o700 });
    writeFileSync(staged, JSON.stringify(paths), { mode: 0o600 });
    renameSync(staged, this.#file);
  }
}
