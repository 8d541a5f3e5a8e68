import { mkdtempSync, realpathSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { WatchEvent } from '../../../src/daemon/services/watch/local/event.ts';
import { type Watch, Watcher, type WatchOptions } from '../../../src/daemon/services/watch/watcher.ts';
import { testLanes } from './lanes.ts';

const SENTINEL = '.sentinel-';
/** Many, because a busy machine may let the survey of a tree do little in each turn of the event loop. */
const QUIET_ROUNDS = 20;

/** A directory, a watch on it, and its events. */
export class WatchFixture implements AsyncDisposable {
  readonly watcher: Watcher;
  readonly base: string;
  readonly dir: string;
  readonly #releases: (() => void)[] = [];
  /** Keeps the process alive, which inotify does not. */
  readonly #alive = setInterval(() => {}, 1000);
  #sentinels = 0;

  constructor(watcher = new Watcher(testLanes), parent = tmpdir()) {
    this.watcher = watcher;
    this.base = realpathSync(mkdtempSync(join(parent, 'envd-watch-')));
    this.dir = join(this.base, 'root');
  }

  at(...names: string[]): string {
    return join(this.dir, ...names);
  }

  outside(...names: string[]): string {
    return join(this.base, ...names);
  }

  async watch(options: Partial<WatchOptions> = {}, path = this.dir): Promise<Watch> {
    const watch = await this.watcher.watch(path, { recursive: true, allowNetworkMounts: false, ...options });
    this.#releases.push(() => watch[Symbol.dispose]());
    return watch;
  }

  /** The events of everything that has happened so far, as `type name`. */
  async told(watch: Watch, dir = this.dir): Promise<string[]> {
    return (await this.events(watch, dir)).map(({ type, name }) => `${type} ${name}`);
  }

  /**
   * The events of everything that has happened so far: makes and removes marker files until no other events arrive, as
   * those of the content of new directories follow later.
   */
  async events(watch: Watch, dir = this.dir): Promise<WatchEvent[]> {
    const events: WatchEvent[] = [];
    for (let quiet = 0; quiet < QUIET_ROUNDS; quiet++) {
      const name = `${SENTINEL}${this.#sentinels++}`;
      writeFileSync(join(dir, name), '');
      unlinkSync(join(dir, name));
      await new Promise((resolve) => setImmediate(resolve));
      for (let seen = false; !seen; ) {
        const batch = await watch.next();
        if (!batch) return events;
        // After a rescan there are no events of what was before.
        seen = batch.some(
          (event) => event.type === 'rescan' || (event.type === 'remove' && event.name === name),
        );
        const others = batch.filter((event) => !event.name.startsWith(SENTINEL));
        if (others.length > 0) quiet = 0;
        events.push(...others);
      }
    }
    return events;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const release of this.#releases) release();
    this.watcher[Symbol.dispose]();
    clearInterval(this.#alive);
    rmSync(this.base, { recursive: true, force: true });
  }
}

/** All events of a watch until it ends. */
export async function untilEnd(watch: Watch): Promise<string[]> {
  const lines: string[] = [];
  for (let events = await watch.next(); events; events = await watch.next()) {
    for (const { type, name } of events) lines.push(`${type} ${name}`);
  }
  return lines;
}
