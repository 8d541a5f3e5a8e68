import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { ExclusiveLock, KeyedQueue } from '../../../base/exclusion.ts';
import { debug } from '../../../base/program/debug.ts';
import { Durations } from '../../../base/tally.ts';
import { freezeFilesystem, thawFilesystem } from '../../linux/system/machine.ts';
import { FrozenRecord, Watchdog } from './recovery.ts';
import type { WriteGate } from './write-gate.ts';

/** How long a freeze waits for changes that are under way, in milliseconds. */
const IDLE_LIMIT_MS = 2000;

export interface FilesystemFreezerOptions {
  /** A directory of the file system to freeze. */
  readonly path: string;
  /** Directories that the daemon itself writes to. They must be on other file systems. */
  readonly ownDirectories: readonly string[];
  /** The file, on another file system, from which a later daemon learns what is frozen. */
  readonly recordFile: string;
  /** Excludes other operations before a pause. */
  readonly lock: ExclusiveLock;
  /** Runs one freeze or thaw at a time, because the kernel refuses a thaw during a freeze. */
  readonly queue: KeyedQueue;
  readonly gate: WriteGate;
  /** Called before the file system is frozen and after it was thawed. In between the log must not be written. */
  readonly onFrozen: (frozen: boolean) => void;
  /** Called when the watchdog has thawed, with null or the error of a failed attempt. */
  readonly onWatchdog: (error: unknown) => void;
  /** Called when the record cannot be removed after a thaw. */
  readonly onStaleRecord: (error: unknown) => void;
}

/**
 * Freezes a file system before a pause, and stops the daemon's own writes to it. A watchdog thaws it if nobody else does.
 */
export class FilesystemFreezer implements Disposable {
  readonly durations = new Durations();
  readonly #options: FilesystemFreezerOptions;
  readonly #record: FrozenRecord;
  readonly #watchdog: Watchdog;
  #frozen = false;

  constructor(options: FilesystemFreezerOptions) {
    this.#options = options;
    this.#watchdog = new Watchdog(() => this.release(), options.onWatchdog);
    this.#record = new FrozenRecord(options.recordFile, options.onStaleRecord);
    if (this.#record.read().includes(options.path)) this.#markFrozen();
  }

  get watchdogThaws(): number {
    return this.#watchdog.thaws;
  }

  /** Whether this daemon, or a previous one, has frozen the file system and not thawed it. */
  get active(): boolean {
    return this.#frozen;
  }

  /** Whether `release` may have anything to do, because the file system is frozen or a freeze may be under way. */
  get mayBeFrozen(): boolean {
    return this.#frozen || !this.#options.queue.isIdle;
  }

  /**
   * Freezes the file system, unless it is frozen already. Throws `unavailable` while another operation holds the lock or
   * files are being changed, and `failed_precondition` where the file system cannot be frozen.
   */
  async freeze(): Promise<void> {
    using _ = this.#options.lock.acquire('fsfreeze');
    await this.durations.measure(() => this.#options.queue.run(this.#options.path, () => this.#freeze()));
  }

  /**
   * Thaws the file system, even if another process has frozen it. Throws `unavailable` while another operation holds the
   * lock.
   */
  async thaw(): Promise<void> {
    using _ = this.#options.lock.acquire('fsthaw');
    await this.#options.queue.run(this.#options.path, () => this.#thaw());
  }

  /** Thaws the file system if this daemon, or a previous one, has frozen it. Does not take the lock. */
  async release(): Promise<void> {
    await this.#options.queue.run(this.#options.path, async () => {
      if (this.#frozen) await this.#thaw();
    });
  }

  /** Disarms the watchdog. Call it after the thaw. */
  [Symbol.dispose](): void {
    this.#watchdog.disarm();
  }

  async #freeze(): Promise<void> {
    const { path } = this.#options;
    const wasFrozen = this.#frozen;
    try {
      if (!wasFrozen) await this.#prepare();
      this.#markFrozen();
      await freezeFilesystem(path);
    } catch (error) {
      if (!wasFrozen) this.#markThawed();
      throw error;
    }
  }

  /** Records the freeze, so that after a crash the next daemon knows of it. Then stops the daemon's own writes. */
  async #prepare(): Promise<void> {
    const { path, gate, ownDirectories } = this.#options;
    await assertNotOwn(path, ownDirectories);
    this.#record.write([path]);
    gate.shut();
    await gate.whenIdle(IDLE_LIMIT_MS);
    // The thread pool takes jobs in order, so all writes that uploads have queued were started when this returns.
    await stat(path);
  }

  async #thaw(): Promise<void> {
    await thawFilesystem(this.#options.path);
    this.#markThawed();
    debug('freeze', 'file system thawed');
  }

  #markFrozen(): void {
    this.#options.gate.shut();
    if (!this.#frozen) this.#options.onFrozen(true);
    this.#frozen = true;
    this.#watchdog.arm();
  }

  #markThawed(): void {
    const wasFrozen = this.#frozen;
    this.#frozen = false;
    this.#watchdog.disarm();
    this.#options.gate.open();
    if (wasFrozen) this.#options.onFrozen(false);
    this.#record.update([]);
  }
}

/** Throws `failed_precondition` if the daemon itself would block on the frozen file system, and could not thaw it. */
async function assertNotOwn(path: string, directories: readonly string[]): Promise<void> {
  const { dev } = await stat(path);
  for (const directory of directories) {
    if ((await deviceOf(directory)) !== dev) continue;
    const reason = `the daemon writes to '${directory}', which must be on another file system`;
    const text = `cannot freeze the file system of '${path}': ${reason}`;
    throw new EnvdError('failed_precondition', text);
  }
}

/** Returns the device of the directory, or of its nearest ancestor that exists. */
async function deviceOf(directory: string): Promise<number> {
  try {
    return (await stat(directory)).dev;
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    return deviceOf(dirname(directory));
  }
}
