import { EnvdError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import { PolledWatch } from '../../../linux/inotify/polled-watch.ts';
import { type BytePath, bytePath, displayPath, pathBuffer } from '../../../linux/paths/byte-path.ts';
import type { TreeChange, WatchSink } from '../local/event.ts';
import type { KernelWatches } from '../local/kernel-watches.ts';
import { watchLocally } from '../local/local-watch.ts';
import { Ledger } from './ledger.ts';

const MAX_POLLED = 100_000;
/**
 * How long a change that polling found waits, in milliseconds. If it was made through this mount, inotify reports it
 * meanwhile, with the right type.
 */
const HEAD_START_MS = 100;
/** After how many polling intervals permissions and owners are checked, because polling does not compare them. */
const RIGHTS_INTERVALS = 5;
/** After how many polling intervals a missing entry counts as removed. Until then it may turn up under another name. */
const GRACE_INTERVALS = 1.5;
const TICK_MS = 250;
/** After how many changes a message is sent, although more are waiting to be handled. */
const MAX_BATCH = 512;

export interface MergedWatchOptions {
  readonly kernel: KernelWatches;
  /** The path, which contains no symbolic link. */
  readonly root: BytePath;
  readonly recursive: boolean;
  readonly report: (changes: readonly TreeChange[]) => void;
  /** Called once, after the watch was started, with the error, or with null when the directory is gone. */
  readonly ended: (error: unknown) => void;
}

/**
 * Watches a directory of a network file system. Inotify reports changes that are made through this mount at once, and polling
 * finds those that are made elsewhere.
 */
export class MergedWatch implements WatchSink, Disposable {
  readonly #options: MergedWatchOptions;
  readonly #owned = new DisposableStack();
  readonly #ledger: Ledger;
  /** Changes that inotify has reported and that were not handled yet. */
  readonly #incoming: TreeChange[] = [];
  /** Entries that polling found changed, and whose delay goes on. */
  readonly #changed = new Set<BytePath>();
  #due: BytePath[] = [];
  /** How the watch ends once everything that has arrived was handled. */
  #ending: { readonly error: Error | null } | null = null;
  #state: 'starting' | 'idle' | 'working' = 'starting';

  private constructor(options: MergedWatchOptions) {
    this.#options = options;
    this.#ledger = new Ledger(options.root);
  }

  /**
   * Starts a watch, and resolves when every further change will be reported. Throws `resource_exhausted` for more than
   * 100,000 entries, and the reason of `signal`.
   */
  static async start(options: MergedWatchOptions, signal: AbortSignal): Promise<MergedWatch> {
    const watch = new MergedWatch(options);
    try {
      await watch.#start(signal);
      return watch;
    } catch (error) {
      watch[Symbol.dispose]();
      throw error;
    }
  }

  push(change: TreeChange): void {
    this.#incoming.push(change);
    this.#work();
  }

  /** Call it when the local watch or the polling has ended. */
  end(error: Error | null): void {
    this.#ending = { error };
    this.#work();
  }

  [Symbol.dispose](): void {
    this.#owned.dispose();
  }

  async #start(signal: AbortSignal): Promise<void> {
    const { kernel, root, recursive } = this.#options;
    const local = { kernel, ground: { path: root, owner: null }, recursive, enters: () => true, sink: this };
    this.#owned.use(await watchLocally(local, signal));
    const polled = await PolledWatch.open(pathBuffer(root).toString(), {
      recursive,
      onChange: (path) => this.#pollFound(bytePath(Buffer.from(path)).slice(root.length + 1)),
      onError: (error) => this.end(error instanceof Error ? error : new Error(String(error))),
    });
    this.#owned.defer(() => void polled[Symbol.asyncDispose]().catch(() => {}));
    signal.throwIfAborted();
    await this.#ledger.fill(recursive, MAX_POLLED);
    this.#checkSize();
    await this.#workOff();
    signal.throwIfAborted();
    // The reader has not been told yet that the watch is live, so it gets no earlier changes.
    this.#ledger.take();
    this.#state = 'idle';
    let rightsAt = monotonicMs();
    const ticking = setInterval(() => {
      this.#ledger.expire(polled.intervalMs * GRACE_INTERVALS + HEAD_START_MS);
      if (monotonicMs() - rightsAt > polled.intervalMs * RIGHTS_INTERVALS && this.#due.length === 0) {
        rightsAt = monotonicMs();
        this.#due = this.#ledger.names();
      }
      this.#work();
    }, TICK_MS);
    this.#owned.defer(() => clearInterval(ticking));
    this.#work();
  }

  #pollFound(name: BytePath): void {
    if (name === '' || this.#owned.disposed) return;
    if (this.#changed.size === 0) setTimeout(() => this.#headStartOver(), HEAD_START_MS);
    this.#changed.add(name);
  }

  #headStartOver(): void {
    // Parents come first, because the move of a directory explains the changes of all its entries.
    this.#due = this.#due.concat([...this.#changed].sort());
    this.#changed.clear();
    this.#work();
  }

  /** Handles everything that has arrived, unless that is going on already. */
  #work(): void {
    if (this.#state !== 'idle' || this.#owned.disposed) return;
    this.#state = 'working';
    this.#workOff()
      .then(() => this.#rest())
      .catch((error: unknown) => this.#finish(error));
  }

  async #workOff(): Promise<void> {
    while (!this.#owned.disposed) {
      await this.#workOffIncoming();
      // Taking them one by one would move all others each time.
      const names = this.#due.splice(0, MAX_BATCH);
      if (names.length === 0) return;
      for (const name of names) {
        await this.#workOffIncoming();
        if (this.#owned.disposed) return;
        await this.#ledger.check(name);
        this.#flushIfMany();
      }
    }
  }

  async #workOffIncoming(): Promise<void> {
    while (this.#incoming.length > 0)
      for (const change of this.#incoming.splice(0)) {
        if (this.#owned.disposed) return;
        await this.#applyInotify(change);
        this.#flushIfMany();
      }
  }

  #rest(): void {
    if (this.#owned.disposed) return;
    this.#state = 'idle';
    this.#flush();
    this.#checkSize();
    if (this.#incoming.length > 0) this.#work();
    else if (this.#ending) this.#finish(this.#ending.error);
  }

  async #applyInotify(change: TreeChange): Promise<void> {
    await this.#ledger.applyInotify(change);
    if (change.name === '.' && change.type === 'rescan')
      await this.#ledger.fill(this.#options.recursive, MAX_POLLED);
  }

  #flushIfMany(): void {
    if (this.#ledger.waiting > MAX_BATCH) this.#flush();
  }

  #flush(): void {
    if (this.#ledger.waiting > 0 && this.#state !== 'starting') this.#options.report(this.#ledger.take());
  }

  #checkSize(): void {
    if (this.#ledger.size <= MAX_POLLED) return;
    const root = displayPath(this.#options.root);
    throw new EnvdError(
      'resource_exhausted',
      `cannot watch path on network filesystem: more than ${MAX_POLLED} entries to poll, watch a smaller directory: '${root}'`,
    );
  }

  #finish(error: unknown): void {
    if (this.#owned.disposed) return;
    this[Symbol.dispose]();
    this.#options.ended(error);
  }
}
