import { type ChokidarOptions, FSWatcher, type Scheduler } from 'chokidar';
import { monotonicMs } from '../../../base/monotonic.ts';

export interface PolledWatchOptions {
  readonly recursive: boolean;
  /** Called when the entry at `path` was changed, created or removed. */
  readonly onChange: (path: string) => void;
  readonly onError: (error: unknown) => void;
}

/** How often each entry is polled while the load is low, in milliseconds. */
const INTERVAL_MS = 1000;
/** Delays of chokidar that are at least this long are polling intervals, which alone are stretched, in milliseconds. */
const MIN_POLLING_MS = INTERVAL_MS / 2;
/** How often the CPU use is measured, in milliseconds. */
const MEASURE_MS = 2000;
/** The share of a core that the process may use. Above it the interval is stretched. */
const SHARE_OF_CORE = 0.08;
/** The most that the interval is stretched. */
const MAX_FACTOR = 60;

/**
 * Finds changes by polling. It compares size, modification time and inode number, and follows no symbolic link. It does not
 * find entries whose names are not valid UTF-8.
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

  /** Starts to poll; resolves when every entry was polled once. */
  static async open(root: string, options: PolledWatchOptions): Promise<PolledWatch> {
    const watch = new PolledWatch(root, options);
    await new Promise<void>((resolve) => watch.#watcher.once('ready', resolve));
    watch.#pace.start();
    return watch;
  }

  /** The current polling interval, in milliseconds. */
  get intervalMs(): number {
    return INTERVAL_MS * this.#pace.factor;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#pace[Symbol.dispose]();
    await this.#watcher.close();
  }
}

/** Gives timers to chokidar, and stretches polling intervals by a factor that grows with the CPU use of the process. */
class Pace implements Scheduler, Disposable {
  factor = 1;
  #used = process.cpuUsage();
  #measuring: NodeJS.Timeout | null = null;

  /** Starts to measure. Call it after the first scan, which costs more than polling. */
  start(): void {
    this.#used = process.cpuUsage();
    this.#measuring = setInterval(() => this.#measure(), MEASURE_MS);
  }

  now(): number {
    return monotonicMs();
  }

  setTimeout(callback: () => void, delay: number): NodeJS.Timeout {
    return setTimeout(callback, delay < MIN_POLLING_MS ? delay : delay * this.factor);
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
    this.factor = Math.min(MAX_FACTOR, Math.max(1, this.factor * change));
  }
}
