import { EnvdError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import { PolledWatch } from '../../../linux/inotify/polled-watch.ts';
import { type BytePath, bytePath, displayPath, pathBuffer } from '../../../linux/paths/byte-path.ts';
import type { TreeChange, WatchSink } from '../local/event.ts';
import type { KernelWatches } from '../local/kernel-watches.ts';
import { LocalWatch } from '../local/local-watch.ts';
import { Ledger } from './ledger.ts';
import { Reconciler } from './reconciler.ts';

/** Maximum number of polled entries. */
const MAX_POLLED = 100_000;
/** Delay of changes found by polling, in milliseconds: inotify reports first those made through this mount. */
const HEAD_START_MS = 100;
/** Polling does not compare permissions and owners; they are checked every so many polling intervals. */
const RIGHTS_INTERVALS = 5;
/** How long a missing entry may turn up under another name, in polling intervals, before it counts as removed. */
const GRACE_INTERVALS = 1.5;
const TICK_MS = 250;
/** Maximum number of changes in one message. */
const MAX_BATCH = 512;

export interface MergedWatchOptions {
  readonly kernel: KernelWatches;
  /** Without symbolic links. */
  readonly root: BytePath;
  readonly recursive: boolean;
  readonly tell: (changes: readonly TreeChange[]) => void;
  /** Called once, after the watch has started; null when the directory is gone. */
  readonly ended: (error: unknown) => void;
}

/**
 * A watch of a network file system: inotify reports changes made through this mount immediately, polling finds changes
 * made elsewhere.
 */
export class MergedWatch implements WatchSink, Disposable {
  readonly #options: MergedWatchOptions;
  readonly #owned = new DisposableStack();
  readonly #ledger: Ledger;
  readonly #reconciler: Reconciler;
  /** Changes that inotify has told. */
  readonly #incoming: TreeChange[] = [];
  /** Entries that polling found changed, within their delay; `#due`: entries to check now. */
  readonly #changed = new Set<BytePath>();
  #due: BytePath[] = [];
  /** How the watch ends when all that has arrived is handled. */
  #ending: { readonly error: Error | null } | null = null;
  #state: 'starting' | 'idle' | 'working' = 'starting';

  private constructor(options: MergedWatchOptions) {
    this.#options = options;
    this.#ledger = new Ledger(options.root);
    this.#reconciler = new Reconciler(this.#ledger);
  }

  /**
   * Resolves when every further change will be reported. Throws `resource_exhausted` for more than 100,000 entries, and
   * the signal's reason.
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

  /** The local watch or the polling has ended. */
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
    this.#owned.use(await LocalWatch.start(local, signal));
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
    // Changes before the start are not reported.
    this.#reconciler.take();
    this.#state = 'idle';
    let rightsAt = monotonicMs();
    const ticking = setInterval(() => {
      this.#reconciler.expire(polled.intervalMs * GRACE_INTERVALS + HEAD_START_MS);
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
    // Parents first: a moved directory accounts for all its entries.
    this.#due.push(...[...this.#changed].sort());
    this.#changed.clear();
    this.#work();
  }

  /** Handles what has arrived, unless that is going on already. */
  #work(): void {
    if (this.#state !== 'idle' || this.#owned.disposed) return;
    this.#state = 'working';
    this.#workOff()
      .then(() => this.#rest())
      .catch((error: unknown) => this.#finish(error));
  }

  async #workOff(): Promise<void> {
    while (!this.#owned.disposed) {
      const change = this.#incoming.shift();
      const name = change ? undefined : this.#due.shift();
      if (change) await this.#applyInotify(change);
      else if (name !== undefined) await this.#reconciler.look(name);
      else return;
      if (this.#reconciler.size > MAX_BATCH) this.#flush();
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
    if (change.name !== '.') return this.#reconciler.applyInotify(change);
    this.#reconciler.passRoot(change);
    if (change.type === 'rescan') await this.#ledger.fill(this.#options.recursive, MAX_POLLED);
  }

  #flush(): void {
    if (this.#reconciler.size > 0 && this.#state !== 'starting') this.#options.tell(this.#reconciler.take());
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
