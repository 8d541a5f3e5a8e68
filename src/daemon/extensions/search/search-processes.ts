import { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { onAbort, within } from '../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { Cgroup } from '../../linux/cgroups/cgroup2.ts';
import {
  type Launch,
  NoCgroup,
  type Pipes,
  type Spawned,
  spawnWithPipes,
  UNKNOWN_EXIT,
} from '../../linux/processes/spawn.ts';
import { isBundle, NODE } from '../../linux/system/self.ts';
import { uniqueId } from '../../linux/system/unique-id.ts';
import type { User } from '../../linux/system/users.ts';
import type { WorkloadCgroups } from '../../services/process/cgroups/cgroups.ts';
import { Leaves } from '../../services/process/cgroups/leaf.ts';
import type { SearchJob } from './program/protocol.ts';
import { SearchOutput } from './search-output.ts';
import { type SearchPlace, SearchPlaces } from './search-places.ts';

/** The program is beside this file, or in an image beside the bundle of the daemon. */
const PROGRAM = new URL(isBundle ? './search.cjs' : './program/main.ts', import.meta.url);
/**
 * The first option prevents that SIGUSR1 opens an inspector. The heap is for one file at a time and the names of a few
 * directories.
 */
const OPTIONS = ['--disable-sigusr1', '--max-old-space-size=192'];
const START_LIMIT_MS = 10_000;
/** The program ends itself at its limit. If it does not, it is killed after this further time, in milliseconds. */
const GRACE_MS = 2000;

/**
 * Returns the daemon's own identity, which the program has until it takes the rights of the user, because other users may not
 * be able to read its code.
 */
function ownUser(): User {
  const [uid, gid] = [process.geteuid?.() ?? 0, process.getegid?.() ?? 0];
  return {
    name: 'root',
    uid,
    gid,
    groups: uid === 0 ? [gid] : (process.getgroups?.() ?? [gid]),
    home: '/',
    shell: '/',
  };
}

/**
 * Starts the programs that search. Each is in the cgroup of the users' processes, so that a freeze stops it and its memory
 * counts as theirs.
 */
export class SearchProcesses {
  readonly #cgroups: WorkloadCgroups;
  readonly #leaves = new Leaves(false);
  readonly #places = new SearchPlaces();

  constructor(cgroups: WorkloadCgroups) {
    this.#cgroups = cgroups;
  }

  /**
   * Starts a search when there is a place for it. It ends when it is disposed of, when `signal` aborts, and at its limit.
   * Throws `resource_exhausted`, the errors of a start, and the reason of the signal.
   */
  async start(job: SearchJob, signal: AbortSignal): Promise<SearchProcess> {
    const place = await this.#places.enter(job.rights?.uid ?? 0, signal);
    try {
      const leaf = this.#cgroups.user?.child(`search-${process.pid}-${uniqueId()}`) ?? null;
      const { process: spawned, pipes } = await this.#spawn(leaf);
      void spawned.exit.then(() => {
        place.left();
        if (leaf) this.#leaves.release(leaf);
      });
      return new SearchProcess(spawned, pipes, { job, place, isWanted: () => this.#places.isWanted });
    } catch (error) {
      place.left();
      throw error;
    }
  }

  async #spawn(leaf: Cgroup | null): Promise<{ process: Spawned; pipes: Pipes }> {
    const [file, ...args] = NODE;
    const launch: Launch = {
      file,
      args: ['envd', ...args, ...OPTIONS, fileURLToPath(PROGRAM)],
      environment: {},
      cwd: '/',
      user: ownUser(),
      cgroup: leaf?.path ?? null,
      limitMs: START_LIMIT_MS,
    };
    try {
      return await spawnWithPipes(launch, true);
    } catch (error) {
      if (!(error instanceof NoCgroup)) throw error;
      this.#cgroups.restore('user');
      return spawnWithPipes(launch, true);
    }
  }
}

interface Search {
  readonly job: SearchJob;
  readonly place: SearchPlace;
  readonly isWanted: () => boolean;
}

/** A program that searches. */
export class SearchProcess implements Disposable {
  readonly output: SearchOutput;
  readonly #spawned: Spawned;
  readonly #place: SearchPlace;
  readonly #isWanted: () => boolean;
  readonly #sockets: readonly Socket[];
  #isOver = false;
  #ended: EnvdError | null = null;

  constructor(spawned: Spawned, { stdin, stdout, stderr }: Pipes, { job, place, isWanted }: Search) {
    this.#spawned = spawned;
    this.#place = place;
    this.#isWanted = isWanted;
    const input = new Socket({ fd: stdin ?? -1, readable: false, writable: true });
    const results = new Socket({ fd: stdout, readable: true });
    const errors = new Socket({ fd: stderr, readable: true });
    this.#sockets = [input, results, errors];
    // The result of the program is in its output. A failed write shows as an early end of the output.
    for (const socket of this.#sockets) socket.on('error', () => {});
    errors.resume();
    input.end(JSON.stringify(job));
    this.output = new SearchOutput(results);
    const silent = new EnvdError('deadline_exceeded', 'search has not ended at its time limit');
    const limit = setTimeout(() => this.#end(silent), job.limitMs + GRACE_MS);
    const removeListener = onAbort(place.ended, () => this.#end(place.ended.reason));
    void spawned.exit.then(() => {
      this.#isOver = true;
      clearTimeout(limit);
      removeListener();
    });
  }

  /** Throws the reason why the output ended before it was complete. */
  async failEarly(): Promise<never> {
    if (this.#ended) throw this.#ended;
    const { code, signal } = await within(GRACE_MS, this.#spawned.exit, () => ({ ...UNKNOWN_EXIT }));
    const how = signal === null ? `exit status ${code}` : `signal ${signal}`;
    throw new EnvdError(
      'aborted',
      `search has ended early (${how}): it was killed, or needed too much memory`,
    );
  }

  /** Ends the search if others wait for its place, because its client does not read. */
  stalled(): void {
    if (!this.#isWanted()) return;
    this.#end(
      new EnvdError('resource_exhausted', 'search was dropped: its client took nothing, and others wait'),
    );
  }

  /** From now on the search is not ended because others wait, so that a change of many files is complete. */
  keep(): void {
    this.#place.keep();
  }

  #end(reason: EnvdError): void {
    this.#ended ??= reason;
    this[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    this.#kill();
    // The place is given back now, because the process ends only when the file system that it waits for answers.
    this.#place.leave();
    for (const socket of this.#sockets) socket.destroy();
  }

  #kill(): void {
    try {
      // The program is a child of the daemon, so no other process has this pid until its exit is known.
      if (!this.#isOver) process.kill(this.#spawned.pid, 'SIGKILL');
    } catch (error) {
      if (!isSystemError(error, 'ESRCH')) throw error;
    }
  }
}
