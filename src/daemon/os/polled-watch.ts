import { type ChokidarOptions, FSWatcher, type Scheduler } from 'chokidar';

export interface PolledWatchOptions {
  readonly recursive: boolean;
  /** Something has changed about the entry at `path`, which may be gone. */
  readonly onChange: (path: string) => void;
  readonly onError: (error: unknown) => void;
}

/** Between two looks at an entry, in ms, when there is little to look at. */
const INTERVAL_MS = 1000;
/** Delays from here on are those of looking, not of internal affairs. */
const LONG_MS = INTERVAL_MS / 2;
const MEASURE_MS = 2000;
/** Looking takes no more of a core than this: with more entries or under load it gets slower. */
const SHARE_OF_CORE = 0.08;
const SLOWEST = 60;

/**
 * Finds changes by looking again and again. Compares size, time of modification and inode; does not follow links.
 * Names that are not UTF-8 are not found.
 */
export class PolledWatch implements AsyncDisposable {
  readonly #watcher: FSWatcher;
  readonly #pace = new Pace();

  private constructor(root: string, { recursive, onChange, onError }: PolledWatchOptions) {
    const options: ChokidarOptions = {
      backend: 'polling',
      pollingInterval: INTERVAL_MS,
      pollingBinaryInterval: INTERVAL_MS,
      ignoreInitial: true,
      followSymlinks: false,
      ignorePermissionErrors: true,
      ...(recursive ? {} : { depth: 0 }),
    };
    this.#watcher = new FSWatcher(options, this.#pace);
    this.#watcher.on('all', (_, path) => onChange(path));
    this.#watcher.on('error', onError);
    this.#watcher.add(root);
  }

  /** Resolves when every entry has been looked at once. */
  static async open(root: string, options: PolledWatchOptions): Promise<PolledWatch> {
    const watch = new PolledWatch(root, options);
    await new Promise<void>((resolve) => watch.#watcher.once('ready', resolve));
    watch.#pace.start();
    return watch;
  }

  /** How long a change may go unnoticed, in ms. */
  get intervalMs(): number {
    return INTERVAL_MS * this.#pace.factor;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#pace[Symbol.dispose]();
    await this.#watcher.close();
  }
}

/** The clock that looking goes by; it slows down when looking costs too much. */
class Pace implements Scheduler, Disposable {
  factor = 1;
  #used = process.cpuUsage();
  #measuring: NodeJS.Timeout | null = null;

  /** Begins to measure: starting up costs more than looking does. */
  start(): void {
    this.#used = process.cpuUsage();
    this.#measuring = setInterval(() => this.#measure(), MEASURE_MS);
  }

  now(): number {
    return performance.now();
  }

  setTimeout(callback: () => void, delay: number): NodeJS.Timeout {
    return setTimeout(callback, delay < LONG_MS ? delay : delay * this.factor);
  }

  clearTimeout(timer: NodeJS.Timeout | undefined): void {
    clearTimeout(timer);
  }

  [Symbol.dispose](): void {
    if (this.#measuring) clearInterval(this.#measuring);
  }

  #measure(): void {
    const { user, system } = process.cpuUsage(this.#used);
    this.#used = process.cpuUsage();
    const share = (user + system) / 1000 / MEASURE_MS;
    const change = Math.min(2, share / SHARE_OF_CORE);
    this.factor = Math.min(SLOWEST, Math.max(1, this.factor * change));
  }
}
