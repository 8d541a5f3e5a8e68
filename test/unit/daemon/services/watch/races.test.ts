import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { expect, test } from 'vitest';
import { IN_MOVED_FROM, IN_MOVED_TO } from '../../../../../src/daemon/linux/inotify/inotify.ts';
import { type BytePath, bytePath } from '../../../../../src/daemon/linux/paths/byte-path.ts';
import type { WatchEvent } from '../../../../../src/daemon/services/watch/local/event.ts';
import {
  KernelWatches,
  type Subscriber,
} from '../../../../../src/daemon/services/watch/local/kernel-watches.ts';
import { watchLocally } from '../../../../../src/daemon/services/watch/local/local-watch.ts';
import { Backlog, Outbox } from '../../../../../src/daemon/services/watch/outbox.ts';
import { changeAtRandom, generator } from '../../../../support/services/random-tree.ts';
import { pathsOf, Replay } from '../../../../support/services/replay.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';

/** Hooks around each step of the survey, in which the test changes the tree. */
class RacedKernel extends KernelWatches {
  /** Before new directories are read. */
  before: () => void = () => {};
  /** After that. */
  after: () => void = () => {};
  /** Before and after a directory is watched. */
  within: () => void = () => {};

  /** Holds back events of these kinds until it is called, as a stopped kernel would. */
  late = 0;
  readonly #lateEvents: (() => void)[] = [];
  readonly #wrapped = new Map<Subscriber, Subscriber>();

  override async drained(): Promise<void> {
    await super.drained();
    this.before();
  }

  /** When the events up to the read have come, and before its names are accepted. */
  beforeAccepting: () => Promise<void> = async () => {};

  override async passed(then: () => void): Promise<void> {
    this.after();
    await super.passed(then);
    await this.beforeAccepting();
  }

  override subscribe(path: BytePath, mask: number, subscriber: Subscriber): number {
    const wrapped: Subscriber = this.#wrapped.get(subscriber) ?? {
      onEvent: (event) => {
        if (event.mask & this.late) this.#lateEvents.push(() => subscriber.onEvent(event));
        else subscriber.onEvent(event);
      },
    };
    this.#wrapped.set(subscriber, wrapped);
    this.within();
    const descriptor = super.subscribe(path, mask, wrapped);
    this.within();
    return descriptor;
  }

  override unsubscribe(descriptor: number, subscriber: Subscriber): void {
    super.unsubscribe(descriptor, this.#wrapped.get(subscriber) ?? subscriber);
  }

  get lateCount(): number {
    return this.#lateEvents.length;
  }

  tellLate(): void {
    this.late = 0;
    for (const tell of this.#lateEvents.splice(0)) tell();
  }
}

/** A recursive watch with a simulated kernel, whose events are replayed. */
class RacedWatch implements Disposable {
  readonly kernel: RacedKernel;
  readonly replay: Replay;
  readonly told: WatchEvent[] = [];
  readonly #fixture: WatchFixture;
  readonly #outbox: Outbox;
  readonly #watch: Disposable;

  private constructor(fixture: WatchFixture, kernel: RacedKernel, outbox: Outbox, watch: Disposable) {
    this.#fixture = fixture;
    this.kernel = kernel;
    this.#outbox = outbox;
    this.#watch = watch;
    this.replay = new Replay(fixture.dir);
  }

  static async start(fixture: WatchFixture): Promise<RacedWatch> {
    const kernel = new RacedKernel();
    const outbox = new Outbox(fixture.dir, new Backlog());
    const ground = { path: bytePath(fixture.dir), owner: null };
    const options = { kernel, ground, recursive: true, sink: outbox, enters: () => true };
    return new RacedWatch(fixture, kernel, outbox, await watchLocally(options));
  }

  isSettled(): boolean {
    const events = this.#outbox.take() ?? [];
    this.told.push(...events);
    this.replay.apply(events);
    return isDeepStrictEqual(this.replay.paths(), pathsOf(this.#fixture.dir));
  }

  [Symbol.dispose](): void {
    this.#watch[Symbol.dispose]();
    this.#outbox[Symbol.dispose]();
    this.kernel[Symbol.dispose]();
  }
}

interface Race {
  readonly what: string;
  readonly first: (at: (name: string) => string) => void;
  readonly before?: (at: (name: string) => string) => void;
  readonly after?: (at: (name: string) => string) => void;
}

function fill(path: string, file: string): void {
  mkdirSync(path);
  writeFileSync(`${path}/${file}`, '');
}

const races: Race[] = [
  {
    what: 'a new directory is renamed, and another made in its place, before it is looked into',
    first: (at) => fill(at('p'), 'one'),
    before: (at) => {
      renameSync(at('p'), at('q'));
      fill(at('p'), 'two');
    },
  },
  {
    what: 'that one is renamed as well, before the first is heard of',
    first: (at) => fill(at('p'), 'one'),
    before: (at) => {
      renameSync(at('p'), at('q'));
      fill(at('p'), 'two');
    },
    after: (at) => renameSync(at('p'), at('r')),
  },
  {
    what: 'a new directory is deleted and made again before it is looked into',
    first: (at) => fill(at('p'), 'one'),
    before: (at) => {
      rmSync(at('p'), { recursive: true });
      fill(at('p'), 'two');
    },
    after: (at) => writeFileSync(at('p/three'), ''),
  },
  {
    what: 'a new directory is replaced by another that is moved over it',
    first: (at) => mkdirSync(at('p')),
    before: (at) => {
      fill(at('q'), 'one');
      renameSync(at('q'), at('p'));
    },
  },
  {
    what: 'an old directory is moved into a new one before that is looked into',
    first: (at) => mkdirSync(at('p')),
    before: (at) => renameSync(at('old'), at('p/moved')),
    after: (at) => writeFileSync(at('p/moved/below/late'), ''),
  },
  {
    what: 'an old directory is moved into a new one, which is moved itself',
    first: (at) => mkdirSync(at('p')),
    before: (at) => renameSync(at('old'), at('p/moved')),
    after: (at) => renameSync(at('p'), at('other/p')),
  },
  {
    what: 'the directory around a new one is renamed, and another made in its place',
    first: (at) => fill(at('other/p'), 'one'),
    before: (at) => {
      renameSync(at('other'), at('another'));
      mkdirSync(at('other'));
      fill(at('other/p'), 'two');
    },
  },
  {
    what: 'a new directory becomes a file',
    first: (at) => fill(at('p'), 'one'),
    before: (at) => {
      rmSync(at('p'), { recursive: true });
      writeFileSync(at('p'), '');
    },
  },
  {
    what: 'a new directory is gone, and a file of its name becomes a directory',
    first: (at) => fill(at('p'), 'one'),
    before: (at) => {
      rmSync(at('p'), { recursive: true });
      writeFileSync(at('p'), '');
      rmSync(at('p'));
      fill(at('p'), 'two');
    },
  },
];

test.each(races)('$what', async ({ first, before, after }) => {
  await using f = new WatchFixture();
  mkdirSync(f.at('old/below'), { recursive: true });
  mkdirSync(f.at('other'));
  const at = (name: string) => f.at(name);
  using watch = await RacedWatch.start(f);
  const { kernel, replay } = watch;
  let raced = false;
  kernel.before = () => {
    kernel.before = () => {};
    before?.(at);
    kernel.after = () => {
      kernel.after = () => {};
      after?.(at);
      raced = true;
    };
  };
  first(at);
  await expect.poll(() => watch.isSettled() && raced).toBe(true);
  // Everything that exists is watched by now.
  for (const path of pathsOf(f.dir))
    if (!/one|two|three|late|^p$/.test(path)) writeFileSync(at(`${path}/last`), '');
  await expect.poll(() => watch.isSettled()).toBe(true);
  expect(replay.rescans).toBe(0);
  expect(replay.faults).toEqual([]);
});

test('the second half of a move arrives after the directory counted as moved away', async () => {
  await using f = new WatchFixture();
  mkdirSync(f.at('a/below'), { recursive: true });
  for (const name of ['a/gone', 'a/below/gone', 'a/stays']) writeFileSync(f.at(name), '');
  using watch = await RacedWatch.start(f);
  watch.kernel.late = IN_MOVED_TO;
  const watches = watch.kernel.size;
  renameSync(f.at('a'), f.at('b'));
  await expect.poll(() => watch.kernel.lateCount).toBe(1);
  await expect.poll(() => watch.kernel.size).toBe(watches - 2);
  for (const name of ['b/gone', 'b/below/gone']) rmSync(f.at(name));
  watch.kernel.tellLate();
  await expect.poll(() => watch.isSettled()).toBe(true);
  expect(watch.replay.faults).toEqual([]);
});

test('a directory takes the place of another one between the read of its parent and the acceptance', async () => {
  await using f = new WatchFixture();
  mkdirSync(f.dir);
  fill(f.at('q'), 'one');
  using watch = await RacedWatch.start(f);
  let replaced = false;
  watch.kernel.beforeAccepting = async () => {
    watch.kernel.beforeAccepting = async () => {};
    renameSync(f.at('q'), f.at('p/d'));
    await watch.kernel.settled();
    replaced = true;
  };
  mkdirSync(f.at('p/d'), { recursive: true });
  await expect.poll(() => replaced && watch.isSettled()).toBe(true);
  writeFileSync(f.at('p/d/two'), '');
  await expect.poll(() => watch.isSettled()).toBe(true);
  expect(watch.told).toContainEqual({ type: 'create', name: 'p/d', path: f.at('p/d'), movedFrom: 'q' });
  expect(watch.replay.paths()).toEqual(['p', 'p/d', 'p/d/one', 'p/d/two']);
  expect(watch.replay.faults).toEqual([]);
});

test('a new directory is moved away before its event arrives', async () => {
  await using f = new WatchFixture();
  mkdirSync(f.at('other'), { recursive: true });
  using watch = await RacedWatch.start(f);
  watch.kernel.late = IN_MOVED_FROM | IN_MOVED_TO;
  let looks = 0;
  watch.kernel.before = () => {
    if (looks++ === 0) renameSync(f.at('p'), f.at('other/q'));
  };
  fill(f.at('p'), 'one');
  await expect.poll(() => looks).toBeGreaterThan(3);
  watch.kernel.tellLate();
  await expect.poll(() => watch.isSettled()).toBe(true);
  expect(watch.replay.faults).toEqual([]);
  expect(watch.replay.rescans).toBe(0);
});

test('the parent of a new directory is moved long before the event arrives', async () => {
  await using f = new WatchFixture();
  mkdirSync(f.at('a'), { recursive: true });
  using watch = await RacedWatch.start(f);
  watch.kernel.late = IN_MOVED_FROM | IN_MOVED_TO;
  renameSync(f.at('a'), f.at('b'));
  fill(f.at('b/new'), 'one');
  // Many times the wait for the second half of a move; nothing is reported meanwhile.
  await new Promise((resolve) => setTimeout(resolve, 500));
  watch.kernel.tellLate();
  await expect.poll(() => watch.isSettled()).toBe(true);
  expect(watch.replay.paths()).toEqual(['b', 'b/new', 'b/new/one']);
  expect(watch.replay.faults).toEqual([]);
});

const seeds = Array.from({ length: Number(process.env.WATCH_SEEDS ?? 20) }, (_, index) => index + 1);

test.each(seeds)('random changes between the steps of the survey, seed %i', async (seed) => {
  await using f = new WatchFixture(undefined, '/dev/shm');
  mkdirSync(f.dir);
  mkdirSync(f.outside('outside'));
  changeAtRandom(f.dir, f.outside('outside'), -seed, 100);
  using watch = await RacedWatch.start(f);
  const random = generator(seed);
  let left = 500;
  const change = () => {
    if (left <= 0 || random() < 0.5) return;
    const outside = f.outside('outside', `${left}`);
    mkdirSync(outside);
    const operations = Math.ceil(random() * 4);
    changeAtRandom(f.dir, outside, seed * 1000 + left, operations);
    left -= operations;
  };
  watch.kernel.within = change;
  watch.kernel.before = change;
  watch.kernel.after = change;
  while (left > 0) {
    change();
    watch.isSettled();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await expect.poll(() => watch.isSettled()).toBe(true);
  for (const path of pathsOf(f.dir)) if (/(^|\/)d\d$/.test(path)) writeFileSync(f.at(path, 'last'), '');
  await expect.poll(() => watch.isSettled()).toBe(true);
  expect(watch.replay.rescans).toBe(0);
  expect(watch.replay.faults).toEqual([]);
});
