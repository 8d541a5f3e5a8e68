import { monotonicMs } from '../../../../base/monotonic.ts';
import { Descent } from './descent.ts';
import type { Directory, DirectoryScan } from './directory.ts';
import { removeEntry, replayEvent } from './entry-events.ts';
import { NameReader } from './reader.ts';
import type { Tree } from './tree.ts';

/** How long a slice may take, in milliseconds. */
const SLICE_MS = 5;
const STEPS_BETWEEN_CLOCK_READS = 64;
/** After how long a directory that was not found is tried again, in milliseconds. The time doubles with each attempt. */
const RETRY_MS = 5;
/** The start of a watch also waits for directories that are made within this time, in milliseconds. */
const PATIENCE_MS = 1000;
/** The number of attempts that the start of a watch waits for. They take 0.3 s. */
const PATIENT_MISSES = 6;
/** The number of attempts after which a directory counts as removed. They take 10 s. */
const MAX_MISSES = 11;

/**
 * Surveys the directories of a tree in slices: adds a watch to each, then reads its names. The tree follows the events, so it
 * lags behind the file system. A directory is therefore opened through its parent, after a check that the parent is the one
 * that is watched. Its names are accepted only after all events up to the read have been handled, and only if none of them
 * moved or removed it. Otherwise it is surveyed again. See `docs/decisions/011-inotify.md`.
 */
export class TreeSurvey implements Disposable {
  readonly tree: Tree;
  readonly #reader: NameReader;
  /** Directories that have yet to be read. */
  readonly #queue: Directory[];
  /** Directories that were read, and whose events up to the read have been handled. */
  readonly #read: Directory[] = [];
  /** Directories that the tree must know before it is live. */
  readonly #awaited: Set<Directory>;
  /** The time until which new directories are awaited, too. */
  readonly #patientUntil = monotonicMs() + PATIENCE_MS;
  /** Whether a slice is going to be taken. */
  #isScheduled = false;

  constructor(tree: Tree) {
    this.tree = tree;
    this.#reader = new NameReader(tree);
    this.#queue = [tree.root];
    this.#awaited = new Set(this.#queue);
  }

  /** Watches the root, and starts to survey the tree. Throws open(2)'s and inotify_add_watch(2)'s errors. */
  start(): void {
    this.tree.watchRoot();
    this.#sliceAfter((run) => this.tree.kernel.inTurn(run));
  }

  /**
   * Queues the tree's new directories. They are surveyed when the events have been handled that are queued now, which may
   * move or remove them. Call it after each step.
   */
  resume(): void {
    const { unsurveyed, isLive } = this.tree;
    if (unsurveyed.length === 0) return;
    const isAwaited = !isLive && monotonicMs() < this.#patientUntil;
    for (const directory of unsurveyed.splice(0)) {
      if (isAwaited) this.#awaited.add(directory);
      this.#enqueue(directory);
    }
  }

  [Symbol.dispose](): void {
    this.#reader[Symbol.dispose]();
  }

  #enqueue(directory: Directory): void {
    // This directory moved while its names were being accepted. The rest of them is accepted now.
    if (directory.look?.isAccepted) this.#read.push(directory);
    else this.#queue.push(directory);
    this.#sliceAfter((run) => this.tree.kernel.whenDrained(run));
  }

  #sliceAfter(wait: (run: () => void) => void): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.tree.later(wait, () => {
      this.#isScheduled = false;
      this.#slice();
    });
  }

  #slice(): void {
    const { kernel } = this.tree;
    const deadline = monotonicMs() + SLICE_MS;
    this.#concludeRead(deadline);
    const done = this.#readQueue(deadline);
    if (done.length > 0) {
      this.tree.later(
        (run) => kernel.whenPassed(run),
        () => {
          for (const directory of done) this.#read.push(directory);
          this.#concludeRead(monotonicMs() + SLICE_MS);
          this.#goOn();
        },
      );
    }
    this.#goOn();
  }

  #goOn(): void {
    if (this.#queue.length + this.#read.length > 0) {
      this.#sliceAfter((run) => this.tree.kernel.inTurn(run));
    }
    if (this.#awaited.size === 0) this.tree.isLive = true;
  }

  /** Reads directories; returns those that were read to their end. */
  #readQueue(deadline: number): Directory[] {
    const done: Directory[] = [];
    using descent = new Descent(this.tree);
    drain(this.#queue, deadline, (directory) => {
      let state = this.#reader.step(directory, descent);
      while (state === 'more' && monotonicMs() < deadline) state = this.#reader.step(directory, descent);
      if (state === 'done') done.push(directory);
      else if (state === 'later') this.#retryAfter(RETRY_MS, directory);
      else if (state === 'none' && !directory.look) this.#awaited.delete(directory);
      return state !== 'more';
    });
    return done;
  }

  #concludeRead(deadline: number): void {
    drain(this.#read, deadline, (directory) => this.#conclude(directory, deadline));
  }

  /** Accepts what was read of a directory, or has it read again. Returns false when it has to be continued. */
  #conclude(directory: Directory, deadline: number): boolean {
    const { root } = this.tree;
    const { look } = directory;
    const top = directory.top();
    const isInTree = top === root;
    if (!isInTree) this.#awaited.delete(directory);
    if (!look || top.gone) return true;
    const isUnmoved = look.moves === directory.moves;
    const isValid = look.isAccepted || (isUnmoved && look.outcome === 'found');
    if (isInTree && isValid) return this.#accept(directory, look, deadline);
    if (!look.isAccepted) this.tree.cancel(directory);
    if (!isInTree) top.moving?.unsurveyed.push(directory);
    else if (isUnmoved && look.outcome === 'missing') this.#missed(directory);
    else this.#outran(directory);
    return true;
  }

  /** Reports the entries and replays the events. Returns false when it has to be continued. */
  #accept(directory: Directory, look: DirectoryScan, deadline: number): boolean {
    look.isAccepted = true;
    let steps = 0;
    const isLate = () => ++steps % STEPS_BETWEEN_CLOCK_READS === 0 && monotonicMs() > deadline;
    for (let next = look.unreported.next(); !next.done; next = look.unreported.next()) {
      const [name, isDirectory] = next.value;
      this.tree.tell('create', directory, name);
      if (isDirectory) this.#found(directory, directory.addChild(name));
      if (isLate()) return false;
    }
    directory.surveyedMs = Date.now() + 1;
    for (let event = look.nextEvent(); event; event = look.nextEvent()) {
      replayEvent(this.tree, directory, event, look.known);
      if (isLate()) return false;
    }
    directory.look = null;
    directory.surveyed = true;
    this.#awaited.delete(directory);
    return true;
  }

  #found(parent: Directory, directory: Directory): void {
    if (this.#awaited.has(parent)) this.#awaited.add(directory);
    this.#enqueue(directory);
  }

  /** Tries again later, because the event of the move or the removal may take a while to come on a busy system. */
  #missed(directory: Directory): void {
    const count = ++directory.misses;
    const isRoot = directory === this.tree.root;
    if (count <= (isRoot ? PATIENT_MISSES : MAX_MISSES)) this.#retry(directory, count);
    else if (isRoot) this.tree.tellRoot('rescan');
    else if (directory.parent) removeEntry(this.tree, directory.parent, directory.name);
  }

  /** Reads the directory again. The tree lags behind changes, which may go on for any time, so this never gives up. */
  #outran(directory: Directory): void {
    const count = directory.outran++;
    if (count === 0) this.#enqueue(directory);
    else this.#retry(directory, Math.min(count, PATIENT_MISSES + 1));
  }

  #retry(directory: Directory, count: number): void {
    if (count > PATIENT_MISSES) this.#awaited.delete(directory);
    this.#retryAfter(RETRY_MS * 2 ** (count - 1), directory);
  }

  #retryAfter(milliseconds: number, directory: Directory): void {
    this.tree.later(
      (run) => setTimeout(run, milliseconds).unref(),
      () => this.#enqueue(directory),
    );
  }
}

/** Takes a step for each item and removes it from the list, until a step returns false or the time is over. */
function drain<T>(list: T[], deadline: number, step: (item: T) => boolean): void {
  let done = 0;
  for (const item of list) {
    if (monotonicMs() > deadline || !step(item)) break;
    done++;
  }
  list.splice(0, done);
}
