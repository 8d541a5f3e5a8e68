import { open, readdir } from 'node:fs/promises';
import { within } from '../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { PROCFS } from '../../linux/lanes/lane.ts';
import { type Lanes, NoAnswer } from '../../linux/lanes/lanes.ts';

/** So much of a file is read, in bytes. */
const MOST_BYTES = 4096;
/** A listing waits for one file at most this time, in milliseconds, with the files of other listings before it. */
const LIMIT_MS = 2000;
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

  /**
   * Reads procfs. Throws `deadline_exceeded` if it does not answer, `resource_exhausted` if too many calls wait, and what `job` throws.
   */
  look<T>(job: () => Promise<T>): Promise<T> {
    return this.#lanes.run(PROCFS, job).catch(refuse);
  }

  /** Returns the ids of all processes. Throws as `look` does. */
  pids(): Promise<number[]> {
    return this.look(async () => (await readdir('/proc')).map(Number).filter((pid) => pid > 0));
  }

  /** Returns the beginning of `/proc/<pid>/<name>`, or null if it cannot be read, or not in time. */
  read(pid: number, name: 'cmdline' | 'io'): Promise<Buffer | null> {
    if (this.#isLate) return Promise.resolve(null);
    const reading = this.#lanes.run(PROCFS, () => beginOf(`/proc/${pid}/${name}`)).catch(nullIfRefused);
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

function refuse(error: unknown): never {
  if (!(error instanceof NoAnswer)) throw error;
  throw new EnvdError(
    'deadline_exceeded',
    "'/proc' does not answer: a process of the guest keeps it locked",
    {
      cause: error,
    },
  );
}

/** Serves to leave something out of a listing. */
export function nullIfRefused(error: unknown): null {
  if (isSystemError(error) || error instanceof EnvdError) return null;
  throw error;
}
