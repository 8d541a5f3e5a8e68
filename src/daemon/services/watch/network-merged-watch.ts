import { EnvdError } from '../../../base/errors.ts';
import { type BytePath, bytePath, displayPath } from '../../os/byte-path.ts';
import { PolledWatch } from '../../os/polled-watch.ts';
import type { WatchEventType, WatchSink } from './event.ts';
import type { KernelWatches } from './kernel-watches.ts';
import { LocalWatch } from './local-watch.ts';
import { Ledger } from './network-ledger.ts';
import type { SentEvent } from './network-protocol.ts';
import { Reconciler } from './network-reconciler.ts';

/** Entries that are polled at most. */
const MAX_POLLED = 100_000;
/** What polling sees may have come through the mount: inotify tells it first then. */
const HEAD_START_MS = 100;
/** Polling does not compare permissions and owners; they are looked at once in so many intervals. */
const RIGHTS_INTERVALS = 5;
/** An entry that is gone may turn up elsewhere: polling finds the two at different times. */
const GRACE_INTERVALS = 1.5;
const TICK_MS = 250;
/** Events sent at once. */
const MAX_TOLD = 512;

export interface MergedWatchOptions {
  readonly kernel: KernelWatches;
  /** Resolved: no part of it a link. */
  readonly root: BytePath;
  readonly recursive: boolean;
  readonly tell: (events: readonly SentEvent[]) => void;
  /** Called once, after the watch has started. */
  readonly ended: (error: unknown) => void;
}

/**
 * A watch of a network file system: inotify tells at once what is done through this mount, polling finds what is
 * done elsewhere.
 */
export class MergedWatch implements WatchSink, Disposable {
  readonly #options: MergedWatchOptions;
  readonly #local: LocalWatch;
  readonly #ledger: Ledger;
  readonly #reconciler: Reconciler;
  #polled: PolledWatch | null = null;
  /** From inotify. */
  #heard: SentEvent[] = [];
  /** From polling; then what is to be looked at now. */
  readonly #changed = new Set<BytePath>();
  #due: BytePath[] = [];
  #told: SentEvent[] = [];
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
      this.#told.push([type, name, movedFrom]),
    );
    this.#local = new LocalWatch({ kernel, rootPath: root, recursive, sink: this, enters: () => true });
  }

  /** Resolves when every change from now on will be told. Throws `resource_exhausted` when there is too much. */
  async start(): Promise<void> {
    const { root, recursive } = this.#options;
    await this.#local.start();
    this.#polled = await PolledWatch.open(displayPath(root), {
      recursive,
      onChange: (path) => this.#suspect(bytePath(path).slice(root.length + 1)),
      onError: (error) => this.#end(error),
    });
    await this.#ledger.fill(recursive, MAX_POLLED);
    this.#checkSize();
    await this.#workOff();
    // What happened until now is nobody's business.
    this.#told = [];
    this.#state = 'idle';
    this.#rightsAt = performance.now();
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
    this.#work();
  }

  push(type: WatchEventType, name: BytePath, movedFrom: BytePath | null = null): void {
    this.#heard.push([type, name, movedFrom]);
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

  #suspect(name: BytePath): void {
    if (name === '' || this.#state === 'over') return;
    this.#changed.add(name);
    this.#headStart ??= setTimeout(() => {
      this.#headStart = null;
      // Parents first: with a directory that was moved, all below is.
      this.#due.push(...[...this.#changed].sort());
      this.#changed.clear();
      this.#work();
    }, HEAD_START_MS);
  }

  #tick(): void {
    const interval = this.#polled?.intervalMs ?? 0;
    this.#reconciler.expire(interval * GRACE_INTERVALS + HEAD_START_MS);
    if (performance.now() - this.#rightsAt > interval * RIGHTS_INTERVALS && this.#due.length === 0) {
      this.#rightsAt = performance.now();
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
      const event = this.#heard.shift();
      const name = event ? undefined : this.#due.shift();
      if (event) await this.#hear(...event);
      else if (name !== undefined) await this.#reconciler.look(name);
      else return;
      if (this.#told.length > MAX_TOLD) this.#flush();
    }
  }

  #rest(): void {
    if (this.#state !== 'working') return;
    this.#state = 'idle';
    this.#flush();
    this.#checkSize();
    if (this.#heard.length > 0) this.#work();
    else if (this.#localEnd) this.#end(this.#localEnd.error);
  }

  async #hear(type: WatchEventType, name: BytePath, movedFrom: BytePath | null): Promise<void> {
    if (name !== '.') return this.#reconciler.hear(type, name, movedFrom);
    this.#told.push([type, name, null]);
    if (type === 'rescan') await this.#ledger.fill(this.#options.recursive, MAX_POLLED);
  }

  #flush(): void {
    if (this.#told.length > 0 && this.#state !== 'starting') this.#options.tell(this.#told.splice(0));
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
