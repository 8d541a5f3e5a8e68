import { EnvdError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import { PolledWatch } from '../../../linux/inotify/polled-watch.ts';
import {
  type BytePath,
  bytePath,
  displayPath,
  joinBytes,
  pathBuffer,
} from '../../../linux/paths/byte-path.ts';
import type { WatchEventType, WatchSink } from '../local/event.ts';
import type { KernelWatches } from '../local/kernel-watches.ts';
import { LocalWatch } from '../local/local-watch.ts';
import { Ledger } from './ledger.ts';
import type { SentEvent } from './protocol.ts';
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
/** Maximum number of events in one message. */
const MAX_BATCH = 512;

export interface MergedWatchOptions {
  readonly kernel: KernelWatches;
  /** Without symbolic links. */
  readonly root: BytePath;
  readonly recursive: boolean;
  readonly tell: (events: readonly SentEvent[]) => void;
  /** Called once, after the watch has started. */
  readonly ended: (error: unknown) => void;
}

/**
 * A watch of a network file system: inotify reports changes made through this mount immediately, polling finds changes
 * made elsewhere.
 */
export class MergedWatch implements WatchSink, Disposable {
  readonly #options: MergedWatchOptions;
  readonly #local: LocalWatch;
  readonly #ledger: Ledger;
  readonly #reconciler: Reconciler;
  #polled: PolledWatch | null = null;
  /** Events of inotify. */
  #incoming: SentEvent[] = [];
  /** Changes found by polling, within their delay; `#due`: entries to check now. */
  readonly #changed = new Set<BytePath>();
  #due: BytePath[] = [];
  #outgoing: SentEvent[] = [];
  #localEnd: { readonly error: Error | null } | null = null;
  #headStart: NodeJS.Timeout | null = null;
  #ticking: NodeJS.Timeout | null = null;
  #rightsAt = 0;
  #state: 'starting' | 'idle' | 'working' | 'over' = 'starting';

  constructor(options: MergedWatchOptions) {
    this.#options = options;
    const { kernel, root, recursive } = options;
    this.#ledger = new Ledger(root);
    this.#reconciler = new Reconciler(this.#ledger, (type, name, movedFrom = null) =>
      this.#outgoing.push([type, name, movedFrom]),
    );
    this.#local = new LocalWatch({
      kernel,
      ground: { path: root, owner: null },
      recursive,
      sink: this,
      enters: () => true,
    });
  }

  /** Resolves when every further change will be reported. Throws `resource_exhausted` for more than 100,000 entries. */
  async start(): Promise<void> {
    const { root, recursive } = this.#options;
    await this.#local.start();
    this.#polled = await PolledWatch.open(pathBuffer(root).toString(), {
      recursive,
      onChange: (path) => this.#pollFound(bytePath(Buffer.from(path)).slice(root.length + 1)),
      onError: (error) => this.#end(error),
    });
    await this.#ledger.fill(recursive, MAX_POLLED);
    this.#checkSize();
    await this.#workOff();
    // Changes before the start are not reported.
    this.#outgoing = [];
    this.#state = 'idle';
    this.#rightsAt = monotonicMs();
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
    this.#work();
  }

  push(type: WatchEventType, directory: BytePath, name: BytePath, movedFrom: BytePath | null = null): void {
    this.#incoming.push([type, joinBytes(directory, name), movedFrom]);
    this.#work();
  }

  /** The local watch has ended. */
  end(error: Error | null = null): void {
    this.#localEnd = { error };
    this.#work();
  }

  [Symbol.dispose](): void {
    this.#state = 'over';
    if (this.#headStart) clearTimeout(this.#headStart);
    if (this.#ticking) clearInterval(this.#ticking);
    this.#local[Symbol.dispose]();
    this.#polled?.[Symbol.asyncDispose]().catch(() => {});
  }

  #pollFound(name: BytePath): void {
    if (name === '' || this.#state === 'over') return;
    this.#changed.add(name);
    this.#headStart ??= setTimeout(() => {
      this.#headStart = null;
      // Parents first: a moved directory accounts for all its entries.
      this.#due.push(...[...this.#changed].sort());
      this.#changed.clear();
      this.#work();
    }, HEAD_START_MS);
  }

  #tick(): void {
    const interval = this.#polled?.intervalMs ?? 0;
    this.#reconciler.expire(interval * GRACE_INTERVALS + HEAD_START_MS);
    if (monotonicMs() - this.#rightsAt > interval * RIGHTS_INTERVALS && this.#due.length === 0) {
      this.#rightsAt = monotonicMs();
      this.#due = this.#ledger.names();
    }
    this.#work();
  }

  #work(): void {
    if (this.#state !== 'idle') return;
    this.#state = 'working';
    this.#workOff()
      .then(() => this.#rest())
      .catch((error: unknown) => this.#end(error));
  }

  async #workOff(): Promise<void> {
    for (;;) {
      const event = this.#incoming.shift();
      const name = event ? undefined : this.#due.shift();
      if (event) await this.#applyInotify(...event);
      else if (name !== undefined) await this.#reconciler.look(name);
      else return;
      if (this.#outgoing.length > MAX_BATCH) this.#flush();
    }
  }

  #rest(): void {
    if (this.#state !== 'working') return;
    this.#state = 'idle';
    this.#flush();
    this.#checkSize();
    if (this.#incoming.length > 0) this.#work();
    else if (this.#localEnd) this.#end(this.#localEnd.error);
  }

  async #applyInotify(type: WatchEventType, name: BytePath, movedFrom: BytePath | null): Promise<void> {
    if (name !== '.') return this.#reconciler.applyInotify(type, name, movedFrom);
    this.#outgoing.push([type, name, null]);
    if (type === 'rescan') await this.#ledger.fill(this.#options.recursive, MAX_POLLED);
  }

  #flush(): void {
    if (this.#outgoing.length > 0 && this.#state !== 'starting') {
      this.#options.tell(this.#outgoing.splice(0));
    }
  }

  #checkSize(): void {
    if (this.#ledger.size <= MAX_POLLED) return;
    const root = displayPath(this.#options.root);
    throw new EnvdError(
      'resource_exhausted',
      `cannot watch path on network filesystem: more than ${MAX_POLLED} entries to poll: '${root}'`,
    );
  }

  #end(error: unknown): void {
    if (this.#state === 'over') return;
    const hasStarted = this.#state !== 'starting';
    this[Symbol.dispose]();
    if (hasStarted) this.#options.ended(error);
  }
}
