import { open } from 'node:fs/promises';
import { within } from '../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { Lane } from '../../linux/lanes/lane.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';

/** How much of a file is read, in bytes. */
const MOST_BYTES = 4096;
/** How long a listing waits for one file, in milliseconds. */
const LIMIT_MS = 250;
/** Few threads: a process can make a look at its memory wait for as long as it likes, with a page that a FUSE server must fill. */
const LANE: Lane = { mounts: [], keys: ['processes'], patience: 'short' };

/**
 * Files of procfs that a process can keep from being read: its arguments are in its memory, and its figures of I/O wait for an
 * execve(2) under way. When one has taken too long, no others are read for the same listing.
 */
export class StrangerFiles {
  readonly #lanes: Lanes;
  #isLate = false;

  constructor(lanes: Lanes) {
    this.#lanes = lanes;
  }

  /** The begin of `/proc/<pid>/<name>`; null: it cannot be read, or not in time. */
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
