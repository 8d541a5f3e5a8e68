import { open } from 'node:fs/promises';
import { within } from '../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { Lane } from '../../linux/lanes/lane.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';

/** So much of a file is read, in bytes. */
const MOST_BYTES = 4096;
/** A listing waits for one file at most this time, in milliseconds. */
const LIMIT_MS = 250;
/**
 * This lane has few threads, because a process can delay a read of its memory for any time, by a page that a FUSE server must
 * provide.
 */
const LANE: Lane = { mounts: [], keys: ['processes'], patience: 'short' };

/**
 * Reads files of procfs that a process can keep from being read. Its arguments are in its memory, and its figures of I/O wait
 * for an execve(2) that is under way. If one file takes too long, no others are read for the same listing.
 */
export class StrangerFiles {
  readonly #lanes: Lanes;
  #isLate = false;

  constructor(lanes: Lanes) {
    this.#lanes = lanes;
  }

  /** Returns the beginning of `/proc/<pid>/<name>`, or null if it cannot be read, or not in time. */
  read(pid: number, name: 'cmdline' | 'io'): Promise<Buffer | null> {
    if (this.#isLate) return Promise.resolve(null);
    const reading = this.#lanes.run(LANE, () => beginOf(`/proc/${pid}/${name}`)).catch(nullIfRefused);
    return within(LIMIT_MS, reading, () => {
      this.#isLate = true;
      return null;
    });
  }
}

async function beginOf(path: string): Promise<Buffer> {
  await using file = await open(path);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(MOST_BYTES), 0, MOST_BYTES, 0);
  return buffer.subarray(0, bytesRead);
}

function nullIfRefused(error: unknown): null {
  if (isSystemError(error) || error instanceof EnvdError) return null;
  throw error;
}
