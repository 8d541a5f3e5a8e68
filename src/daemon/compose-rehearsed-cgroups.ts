import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Cgroup } from './os/cgroup2.ts';
import { Freezer } from './services/freeze/freezer.ts';
import { Leaves } from './services/process/leaf.ts';

/** The files of a cgroup that are read and written after a resume. */
const FILES = {
  'cgroup.events': 'populated 0\nfrozen 1\n',
  'cgroup.freeze': '0\n',
  'memory.events': 'oom_kill 0\n',
  'memory.peak': '0\n',
};
const NEVER = new AbortController().signal;

/**
 * Directories that look like cgroups, for a rehearsal: the real ones are frozen at that time, or are not the daemon's. What a
 * call of /init thaws there is frozen in each round, without and with the rest of the hierarchy in turn.
 */
export class RehearsedCgroups implements Disposable {
  readonly freezer: Freezer;
  readonly #directory: string;
  readonly #workload: Cgroup;
  readonly #leaves = new Leaves(true);

  /** `directory`: to be made, on a file system that is never frozen. */
  constructor(
    directory: string,
    common: Pick<ConstructorParameters<typeof Freezer>[0], 'lock' | 'onWatchdog'>,
  ) {
    this.#directory = directory;
    this.#make();
    this.#workload = new Cgroup(join(directory, 'workload'));
    // In the order of the daemon's own: what V8 learns of an object with another one is of no use.
    this.freezer = new Freezer({
      workload: [this.#workload],
      obstacle: null,
      hierarchy: { top: new Cgroup(directory), own: new Cgroup(join(directory, 'own')) },
      recordFile: join(directory, 'frozen.json'),
      lock: common.lock,
      onWatchdog: common.onWatchdog,
    });
  }

  /** Freezes all for the next round, and does what a process in a cgroup of its own does at its start and end. */
  async renew(isHierarchy: boolean): Promise<void> {
    this.#make();
    const mode = isHierarchy ? 'hierarchy' : 'legacy';
    await this.freezer.freeze({ mode, maxCgroups: 8, maxWaitMs: 0 }, NEVER);
    this.#leaves.existing(this.#workload.path).usage(false);
    const leaf = this.#leaves.create(this.#workload);
    // As a start does. The directory was never made, so that its removal has nothing to do.
    void leaf.path;
    leaf.release();
  }

  /** Removes the directory; `renew` makes it anew. */
  [Symbol.dispose](): void {
    this.freezer[Symbol.dispose]();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #make(): void {
    for (const name of ['workload', 'own', 'other']) {
      const directory = join(this.#directory, name);
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      for (const [file, text] of Object.entries(FILES)) writeFileSync(join(directory, file), text);
    }
  }
}
