import { type Watch, Watcher, type WatchOptions } from './watcher.ts';

/** A watcher with counters. */
export class CountedWatcher extends Watcher {
  /** Open watches of clients. */
  open = 0;
  /** `rescan` events taken by readers. */
  rescans = 0;

  override async watch(path: string, options: WatchOptions): Promise<Watch> {
    const watch = await super.watch(path, options);
    this.open++;
    const close = () => this.open--;
    return {
      next: async (most) => this.#counted(await watch.next(most)),
      take: (most) => this.#counted(watch.take(most)),
      [Symbol.dispose]: once(() => {
        close();
        watch[Symbol.dispose]();
      }),
    };
  }

  #counted<Events extends Awaited<ReturnType<Watch['next']>>>(events: Events): Events {
    for (const { type } of events ?? []) if (type === 'rescan') this.rescans++;
    return events;
  }
}

function once(action: () => void): () => void {
  let done = false;
  return () => {
    if (!done) action();
    done = true;
  };
}
