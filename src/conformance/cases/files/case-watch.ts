import { strict as assert } from 'node:assert';
import { randomUUID } from 'node:crypto';
import { EventType, type FilesystemEvent } from '../../../gen/filesystem/filesystem_pb.js';
import type { MessageCodec, TestedDaemon } from '../../suite/daemon.ts';

export type WatchWay = 'stream' | 'polled';
export const WATCH_WAYS: readonly WatchWay[] = ['stream', 'polled'];

export interface CaseWatchOptions {
  readonly recursive?: boolean;
  readonly includeEntry?: boolean;
}

type Take = () => Promise<readonly FilesystemEvent[] | null>;

const MARK = '.conformance-';

/** A watch on a directory, streamed or polled. */
export class CaseWatch {
  readonly #daemon: TestedDaemon;
  readonly #path: string;
  readonly #take: Take;

  private constructor(daemon: TestedDaemon, path: string, take: Take) {
    this.#daemon = daemon;
    this.#path = path;
    this.#take = take;
  }

  static async polled(
    daemon: TestedDaemon,
    path: string,
    options: CaseWatchOptions = {},
  ): Promise<CaseWatch> {
    const { watcherId } = await daemon.filesystem.createWatcher({ path, ...options });
    daemon.atEnd(() => daemon.filesystem.removeWatcher({ watcherId }));
    return new CaseWatch(daemon, path, async () => {
      const { events } = await daemon.filesystem.getWatcherEvents({ watcherId });
      if (events.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
      return events;
    });
  }

  static async streamed(
    daemon: TestedDaemon,
    path: string,
    options: CaseWatchOptions = {},
    codec: MessageCodec = 'JSON',
  ): Promise<CaseWatch> {
    const gone = new AbortController();
    daemon.atEnd(async () => gone.abort());
    const stream = daemon.clients(codec).filesystem.watchDir({ path, ...options }, { signal: gone.signal });
    const messages = stream[Symbol.asyncIterator]();
    const first = await messages.next();
    assert.equal(first.value?.event.case, 'start', 'the first message is start');
    return new CaseWatch(daemon, path, async () => {
      const { value, done } = await messages.next();
      if (done) return null;
      return value.event.case === 'filesystem' ? [value.event.value] : [];
    });
  }

  /** All events up to now. */
  async events(): Promise<FilesystemEvent[]> {
    const mark = `${MARK}${randomUUID()}`;
    await this.#daemon.filesystem.makeDir({ path: `${this.#path}/${mark}` });
    const events: FilesystemEvent[] = [];
    for (;;) {
      const some = await this.#take();
      assert(some, 'the watch has not ended');
      events.push(...some);
      if (some.some(({ name }) => name === mark)) return events.filter(({ name }) => !name.startsWith(MARK));
    }
  }

  /** The same as `TYPE name`. */
  async told(): Promise<string[]> {
    return (await this.events()).map(briefly);
  }

  /** What is told until this event: what is in a new directory may be told after a later change beside the directory. */
  async until(event: string): Promise<string[]> {
    const all = await this.told();
    while (!all.includes(event)) all.push(...(await this.told()));
    return all;
  }

  /** What is told until the watch ends by itself. */
  async toEnd(): Promise<string[]> {
    const all: string[] = [];
    for (let some = await this.#take(); some; some = await this.#take()) all.push(...some.map(briefly));
    return all;
  }
}

export const briefly = ({ type, name }: FilesystemEvent) => `${EventType[type]} ${name}`;
export const ofKind = (kind: string) => (event: string) => event.startsWith(`${kind} `);

export async function watching(
  daemon: TestedDaemon,
  way: WatchWay,
  options: CaseWatchOptions = {},
): Promise<CaseWatch> {
  const path = await daemon.makeDir('watched');
  return way === 'polled'
    ? CaseWatch.polled(daemon, path, options)
    : CaseWatch.streamed(daemon, path, options);
}

export const insideWatched = (daemon: TestedDaemon, ...names: readonly string[]) =>
  daemon.at('watched', ...names);
