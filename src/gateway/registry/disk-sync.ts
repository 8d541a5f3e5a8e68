import { EnvdError, isSystemError } from '../../base/errors.ts';
import { GroupSync } from './group-sync.ts';

/** SQLite returns this code when the disk is full (sqlite.org/rescode.html). */
const SQLITE_FULL = 13;

/** Makes what was written to a database survive a crash of the machine. */
export class DiskSync {
  readonly #sync: GroupSync;

  /** @param sync resolves when everything that was written before the call is on the disk */
  constructor(sync: () => Promise<void>) {
    this.#sync = new GroupSync(sync);
  }

  /**
   * Calls `work`, and resolves when what it has written would survive a crash, unless it returns false. Returns what it returns.
   * Throws `no_space` when the disk is full.
   */
  async durably(work: () => boolean): Promise<boolean> {
    try {
      if (!work()) return false;
      await this.#sync.sync();
      return true;
    } catch (error) {
      if (!isFull(error)) throw error;
      throw new EnvdError('no_space', 'the registry cannot be written: its disk is full, free some space', {
        cause: error,
      });
    }
  }
}

function isFull(error: unknown): boolean {
  const code = error instanceof Error && 'errcode' in error ? Number(error.errcode) & 0xff : 0;
  return code === SQLITE_FULL || isSystemError(error, 'ENOSPC', 'EDQUOT');
}
