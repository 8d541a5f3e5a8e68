import { onAbort } from '../../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { type BytePath, displayPath } from '../../../linux/paths/byte-path.ts';
import type { Ground } from './descent.ts';
import type { WatchEventType, WatchSink } from './event.ts';
import type { KernelWatches } from './kernel-watches.ts';
import { RootGuard } from './root-guard.ts';
import { Tree, type TreeOwner } from './tree.ts';

export interface LocalWatchOptions {
  readonly kernel: KernelWatches;
  readonly ground: Ground;
  readonly recursive: boolean;
  readonly sink: WatchSink;
  /** Whether the directory at this path is to be watched. */
  readonly enters: (path: BytePath) => boolean;
}

/**
 * One watch through inotify. After lost events a new tree is set up; the reader gets `rescan` when all of it is
 * watched, so that no change after its rescan is missed.
 */
export class LocalWatch implements TreeOwner, Disposable {
  readonly kernel: KernelWatches;
  readonly ground: Ground;
  readonly recursive: boolean;
  readonly enters: (path: BytePath) => boolean;

  readonly #sink: WatchSink;
  readonly #started = Promise.withResolvers<void>();
  readonly #releases: (() => void)[] = [];
  #tree: Tree;
  #previous: Tree | null = null;
  #state: 'starting' | 'live' | 'over' = 'starting';

  constructor(options: LocalWatchOptions) {
    this.kernel = options.kernel;
    this.ground = options.ground;
    this.recursive = options.recursive;
    this.enters = options.enters;
    this.#sink = options.sink;
    this.#tree = new Tree(this);
  }

  /** Resolves when everything is watched. Throws `resource_exhausted`, the signal's reason, ENOENT. */
  async start(signal?: AbortSignal): Promise<void> {
    const ignore = signal ? onAbort(signal, () => this.fail(signal.reason)) : () => {};
    try {
      this.#startTree();
      await this.#started.promise;
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    } finally {
      ignore();
    }
  }

  tell(type: WatchEventType, directory: BytePath, name: BytePath, movedFrom: BytePath | null): void {
    this.#sink.push(type, directory, name, movedFrom);
  }

  complete(): void {
    this.#previous?.[Symbol.dispose]();
    this.#previous = null;
    if (this.#state === 'live') this.#sink.push('rescan', '', '.');
    this.#state = 'live';
    this.#started.resolve();
  }

  lost(): void {
    if (this.#state === 'over') return;
    this.#tree.stop();
    // The old tree keeps its kernel watches until the new tree shares them.
    if (this.#previous) this.#tree[Symbol.dispose]();
    else this.#previous = this.#tree;
    this.#tree = new Tree(this);
    try {
      this.#tree.start();
    } catch (error) {
      if (isSystemError(error, 'ENOENT', 'ENOTDIR')) this.rootLeft('remove');
      else this.fail(error);
    }
  }

  rootLeft(type: 'remove' | 'rename'): void {
    if (this.#state === 'starting') {
      this.fail(new EnvdError('not_found', `path not found: '${displayPath(this.ground.path)}'`));
    } else if (this.#state === 'live') {
      this.#sink.push(type, '', '.');
      this.#sink.end();
      this[Symbol.dispose]();
    }
  }

  fail(error: unknown): void {
    if (this.#state === 'over') return;
    this.#started.reject(error);
    this.#sink.end(error instanceof Error ? error : new Error(String(error)));
    this[Symbol.dispose]();
  }

  /** Removes all watches; events already queued for the reader remain. */
  [Symbol.dispose](): void {
    this.#state = 'over';
    for (const release of this.#releases.splice(0)) release();
    this.#previous?.[Symbol.dispose]();
    this.#previous = null;
    this.#tree[Symbol.dispose]();
  }

  #startTree(): void {
    if (this.#state === 'over') return;
    this.#releases.push(this.kernel.onOverflow(() => this.lost()));
    const guard = new RootGuard(this.kernel, this.ground.path, (type) => this.#checkRoot(type));
    this.#releases.push(() => guard[Symbol.dispose]());
    this.#tree.start();
  }

  #checkRoot(type: 'remove' | 'rename'): void {
    if (this.#state !== 'over' && !this.#tree.isRooted()) this.rootLeft(type);
  }
}
