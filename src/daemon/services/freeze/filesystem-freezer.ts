import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { type ExclusiveLock, SerialQueue } from '../../../base/exclusion.ts';
import { Durations } from '../../../base/tally.ts';
import { freezeFilesystem, thawFilesystem } from '../../os/machine.ts';
import { FrozenRecord, WATCHDOG_MS, Watchdog } from './recovery.ts';
import type { WriteGate } from './write-gate.ts';

/** How long a freeze waits for changes to files that are under way, in milliseconds. */
const REST_LIMIT_MS = 2000;

export interface FilesystemFreezerOptions {
  /** A directory of the file system that is frozen: `/`. */
  readonly path: string;
  /** Directories that the daemon writes to by itself, which must be on other file systems. */
  readonly ownDirectories: readonly string[];
  /** File that tells a restarted daemon what is frozen; on a file system that is not. */
  readonly recordFile: string;
  /** One operation before a pause at a time. */
  readonly lock: ExclusiveLock;
  readonly gate: WriteGate;
  /** Told before the file system is frozen, and after it was thawed: from one to the other nothing may be logged. */
  readonly onFrozen: (frozen: boolean) => void;
  /** Told that the watchdog has thawed (null), or of the error when it could not. */
  readonly onWatchdog: (error: unknown) => void;
}

/** Stops all writing to a file system before a pause; the daemon itself goes on, and does not stay stopped for good. */
export class FilesystemFreezer implements Disposable {
  readonly durations = new Durations();
  readonly #options: FilesystemFreezerOptions;
  readonly #record: FrozenRecord;
  readonly #watchdog = new Watchdog(WATCHDOG_MS, () => void this.#expire());
  #frozen = false;
  /** The kernel takes no thaw in the middle of a freeze. */
  readonly #queue = new SerialQueue('freeze or thaw a file system');

  constructor(options: FilesystemFreezerOptions) {
    this.#options = options;
    this.#record = new FrozenRecord(options.recordFile);
    if (this.#record.read().includes(options.path)) this.#prepare();
  }

  /** Whether this daemon, or one before it, has frozen the file system and not thawed it. */
  get active(): boolean {
    return this.#frozen;
  }

  /**
   * Freezes; does nothing more when it is frozen already. Throws `unavailable` while another operation holds the lock
   * or files are being changed, `failed_precondition` where the file system cannot be frozen.
   */
  async freeze(): Promise<void> {
    using _ = this.#options.lock.acquire('fsfreeze');
    await this.durations.measure(() => this.#queue.run(() => this.#freeze()));
  }

  /** Thaws, whoever has frozen; not frozen is no error. Throws `unavailable` while another operation holds the lock. */
  async thaw(): Promise<void> {
    using _ = this.#options.lock.acquire('fsthaw');
    await this.#queue.run(() => this.#thaw());
  }

  /** Thaws what this daemon, or one before it, has frozen, whatever else is under way. */
  async release(): Promise<void> {
    await this.#queue.run(async () => {
      if (this.#frozen) await this.#thaw();
    });
  }

  /** To be called when everything is thawed. */
  [Symbol.dispose](): void {
    this.#watchdog.disarm();
  }

  async #freeze(): Promise<void> {
    const { path, gate, ownDirectories } = this.#options;
    const wasFrozen = this.#frozen;
    if (!wasFrozen) {
      await refuseOwn(path, ownDirectories);
      await quiet(gate, path);
    }
    this.#prepare();
    this.#record.write([path]);
    try {
      await freezeFilesystem(path);
    } catch (error) {
      if (!wasFrozen) this.#settle();
      throw error;
    }
  }

  async #thaw(): Promise<void> {
    await thawFilesystem(this.#options.path);
    this.#settle();
  }

  /** First told, then done: a freeze that a crash leaves behind is known to the next daemon. */
  #prepare(): void {
    this.#options.gate.shut();
    if (!this.#frozen) this.#options.onFrozen(true);
    this.#frozen = true;
    this.#watchdog.arm();
  }

  #settle(): void {
    this.#watchdog.disarm();
    this.#record.write([]);
    this.#options.gate.open();
    if (this.#frozen) this.#options.onFrozen(false);
    this.#frozen = false;
  }

  async #expire(): Promise<void> {
    try {
      await this.release();
      this.#options.onWatchdog(null);
    } catch (error) {
      this.#watchdog.arm();
      this.#options.onWatchdog(error);
    }
  }
}

/** Brings the daemon's own writing to rest. */
async function quiet(gate: WriteGate, path: string): Promise<void> {
  gate.shut();
  try {
    await gate.rest(REST_LIMIT_MS);
    // The pool takes its work in order: what uploads have handed to it has been begun when this is done.
    await stat(path);
  } catch (error) {
    gate.open();
    throw error;
  }
}

/** The daemon would stop with what it has frozen, and thaw nothing any more. */
async function refuseOwn(path: string, directories: readonly string[]): Promise<void> {
  const { dev } = await stat(path);
  for (const directory of directories) {
    if ((await deviceOf(directory)) !== dev) continue;
    const text = `cannot freeze the file system of '${path}': the daemon itself writes to '${directory}' on it`;
    throw new EnvdError('failed_precondition', text);
  }
}

/** Of the directory, or of the nearest one above it that exists. */
async function deviceOf(directory: string): Promise<number> {
  try {
    return (await stat(directory)).dev;
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    return deviceOf(dirname(directory));
  }
}
