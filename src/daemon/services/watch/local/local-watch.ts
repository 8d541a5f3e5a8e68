import { onAbort } from '../../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { displayPath } from '../../../linux/paths/byte-path.ts';
import { applyEvent } from './entry-events.ts';
import { rootChange, type TreeChange, type WatchSink } from './event.ts';
import { guardRoot } from './root-guard.ts';
import { TreeSurvey } from './survey.ts';
import { Tree, type TreeOptions } from './tree.ts';

export interface LocalWatchOptions extends TreeOptions {
  readonly sink: WatchSink;
}

/**
 * Watches one directory with inotify: takes the steps of a tree, and passes on the changes that they find. After lost events
 * it sets up a new tree. The reader gets `rescan` when all of that is watched, so that it misses no change after its rescan.
 */
export class LocalWatch implements Disposable {
  readonly #options: LocalWatchOptions;
  readonly #started = Promise.withResolvers<void>();
  readonly #owned = new DisposableStack();
  #survey: TreeSurvey;
  /** The tree before this one, which keeps its kernel watches until the new tree shares them. */
  #previous: Tree | null = null;
  #state: 'starting' | 'live' | 'renewing' | 'over' = 'starting';

  private constructor(options: LocalWatchOptions) {
    this.#options = options;
    this.#survey = this.#newSurvey();
  }

  /**
   * Watches the directory; resolves when everything is watched. Throws `resource_exhausted` at the kernel's limits, ENOENT
   * when the directory does not exist, and the reason of `signal`.
   */
  static async start(options: LocalWatchOptions, signal?: AbortSignal): Promise<LocalWatch> {
    const watch = new LocalWatch(options);
    const ignore = signal ? onAbort(signal, () => watch.#fail(signal.reason)) : () => {};
    try {
      watch.#start();
      await watch.#started.promise;
      return watch;
    } catch (error) {
      watch[Symbol.dispose]();
      throw error;
    } finally {
      ignore();
    }
  }

  [Symbol.dispose](): void {
    this.#state = 'over';
    this.#owned.dispose();
    this.#previous?.[Symbol.dispose]();
    this.#previous = null;
    this.#survey[Symbol.dispose]();
    this.#survey.tree[Symbol.dispose]();
  }

  #newSurvey(): TreeSurvey {
    const survey: TreeSurvey = new TreeSurvey(
      new Tree(this.#options, {
        receive: (directory, event) => this.#run(survey, () => applyEvent(survey.tree, directory, event)),
      }),
    );
    return survey;
  }

  #start(): void {
    if (this.#state === 'over') return;
    const { kernel, ground } = this.#options;
    const checkRoot = (type: 'remove' | 'rename') => {
      const { tree } = this.#survey;
      if (this.#state !== 'over' && !tree.isInPlace(tree.root)) this.#leaveRoot(type);
    };
    this.#owned.use(guardRoot(kernel, ground.path, checkRoot));
    this.#run(this.#survey, () => this.#survey.start());
  }

  /** Takes a step of a tree, unless another tree has replaced it. */
  #run(survey: TreeSurvey, step: () => void): void {
    if (survey !== this.#survey || this.#state === 'over') return;
    try {
      const { changes, later } = survey.tree.run(() => {
        step();
        survey.resume();
      });
      for (const { wait, step: next } of later) wait(() => this.#run(survey, next));
      if (survey.tree.isLive && this.#state !== 'live') this.#goLive();
      for (const change of changes) this.#pass(survey, change);
    } catch (error) {
      this.#fail(error);
    }
  }

  #pass(survey: TreeSurvey, change: TreeChange): void {
    if (survey !== this.#survey || this.#state === 'over') return;
    const { type, name } = change;
    if (type === 'rescan') this.#renew();
    else if (name === '.' && (type === 'remove' || type === 'rename')) this.#leaveRoot(type);
    else this.#options.sink.push(change);
  }

  #goLive(): void {
    this.#previous?.[Symbol.dispose]();
    this.#previous = null;
    if (this.#state === 'renewing') this.#options.sink.push(rootChange('rescan'));
    this.#state = 'live';
    this.#started.resolve();
  }

  #renew(): void {
    const { tree } = this.#survey;
    this.#survey[Symbol.dispose]();
    if (this.#previous) tree[Symbol.dispose]();
    else this.#previous = tree;
    if (this.#state === 'live') this.#state = 'renewing';
    const survey = this.#newSurvey();
    this.#survey = survey;
    this.#run(survey, () => {
      try {
        survey.start();
      } catch (error) {
        if (!isSystemError(error, 'ENOENT', 'ENOTDIR')) throw error;
        survey.tree.tellRoot('remove');
      }
    });
  }

  #leaveRoot(type: 'remove' | 'rename'): void {
    const { ground, sink } = this.#options;
    if (this.#state === 'starting') {
      this.#fail(new EnvdError('not_found', `path not found: '${displayPath(ground.path)}'`));
      return;
    }
    sink.push(rootChange(type));
    sink.end(null);
    this[Symbol.dispose]();
  }

  #fail(error: unknown): void {
    if (this.#state === 'over') return;
    this.#started.reject(error);
    this.#options.sink.end(error instanceof Error ? error : new Error(String(error)));
    this[Symbol.dispose]();
  }
}
