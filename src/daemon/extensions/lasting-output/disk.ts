import { join } from 'node:path';
import { EnvdError } from '../../../base/errors.ts';
import { KeyedQueue } from '../../../base/exclusion.ts';
import { OpenFile } from '../../linux/files/open-file.ts';
import { PathHandle } from '../../linux/files/place.ts';
import { QUICK } from '../../linux/lanes/lane.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { explaining } from '../../linux/system/errno.ts';
import type { WriteGate } from '../../services/pause/write-gate.ts';

export const NO_DIRECTORY = 'the daemon has no directory for output: start it with --output-directory';

/** The disk that keeps output. All writes are one at a time, so that they take one thread of the pool. */
export class Disk {
  readonly #directory: string | null;
  readonly #lanes: Lanes;
  readonly #gate: WriteGate;
  readonly #queue = new KeyedQueue('keep output', Number.POSITIVE_INFINITY);

  constructor(directory: string | null, lanes: Lanes, gate: WriteGate) {
    this.#directory = directory;
    this.#lanes = lanes;
    this.#gate = gate;
  }

  /** Runs a step that writes when it is its turn, and not while the file system is frozen. */
  run<T>(step: () => Promise<T>): Promise<T> {
    return this.#queue.run('', () => this.#gate.runStep(step));
  }

  /**
   * Opens a file without a name, which only the daemon can reach. Throws `failed_precondition` where that is not possible, and
   * the errors of the directory.
   */
  async open(): Promise<OpenFile> {
    const directory = this.#directory;
    if (directory === null) throw new EnvdError('failed_precondition', `cannot keep output: ${NO_DIRECTORY}`);
    return this.#gate.run(() => explaining(directory, () => this.#openIn(directory)));
  }

  /** Returns an owner for a file of an earlier program. */
  own(descriptor: number): OpenFile {
    return new OpenFile(descriptor, this.#lanes, QUICK);
  }

  /** Closes a file, which frees its space. */
  close(file: OpenFile): void {
    void this.#gate.runStep(() => file.close()).catch(() => {});
  }

  async #openIn(directory: string): Promise<OpenFile> {
    const refused = (reason: string) =>
      new EnvdError('failed_precondition', `cannot keep output in '${directory}': ${reason}`);
    // The name is never made. It stands for a file in the directory.
    using place = await PathHandle.open(join(directory, 'output'), false, this.#lanes);
    if (place.isBelowMissing) throw refused('the directory does not exist');
    if (place.owner !== null) throw refused(`its path has a link that belongs to uid ${place.owner}`);
    if (place.lane.mounts.length > 0)
      throw refused('it is on FUSE or on a network, which may stop to answer: use a local disk');
    const file = await place.openUnnamed();
    if (file === null) throw refused('its file system has no unnamed files (O_TMPFILE)');
    return file;
  }
}
