import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  decodeEvents,
  IN_CREATE,
  IN_IGNORED,
  IN_MOVED_FROM,
  IN_MOVED_TO,
  IN_Q_OVERFLOW,
  IN_UNMOUNT,
  Inotify,
  type InotifyEvent,
} from '../../../../../src/daemon/linux/inotify/inotify.ts';
import { bytePath } from '../../../../../src/daemon/linux/paths/byte-path.ts';

let directory: string;
let alive: NodeJS.Timeout;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'envd-inotify-'));
  // Keeps the process alive, which the inotify thread does not.
  alive = setInterval(() => {}, 1000);
});
afterEach(() => {
  clearInterval(alive);
  rmSync(directory, { recursive: true });
});

/** An instance and the events that it has reported. */
class Collector implements Disposable {
  readonly inotify: Inotify;
  readonly events: InotifyEvent[] = [];
  #wake = () => {};

  constructor() {
    this.inotify = new Inotify(() => {
      for (let batch = this.inotify.take(); batch; batch = this.inotify.take()) {
        // Other tests mount file systems.
        for (const event of decodeEvents(batch)) if (event.mask !== IN_UNMOUNT) this.events.push(event);
      }
      this.#wake();
    });
  }

  async until(isEnough: (events: readonly InotifyEvent[]) => boolean): Promise<void> {
    while (!isEnough(this.events)) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Waits for the events of everything that has happened so far. */
  async passed(): Promise<void> {
    const mark = this.inotify.mark();
    await this.until((events) => events.some(({ descriptor }) => descriptor === mark));
  }

  [Symbol.dispose](): void {
    this.inotify[Symbol.dispose]();
  }
}

function openInotifies(): number {
  const targets = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readFileSync(join('/proc/self/fdinfo', fd), 'utf8');
    } catch {
      return '';
    }
  });
  return targets.filter((info) => info.includes('inotify wd:')).length;
}

describe('decoding', () => {
  test('returns events with and without names', () => {
    const batch = Buffer.alloc(16 + 16 + 16);
    batch.writeInt32LE(1, 0);
    batch.writeUInt32LE(IN_MOVED_FROM, 4);
    batch.writeUInt32LE(0xffff_fffe, 8);
    batch.writeUInt32LE(16, 12);
    batch.set([0xff, 0x41], 16);
    batch.writeInt32LE(-1, 32);
    batch.writeUInt32LE(IN_Q_OVERFLOW, 36);
    expect([...decodeEvents(batch)]).toEqual([
      { descriptor: 1, mask: IN_MOVED_FROM, cookie: 0xffff_fffe, name: '\xffA' },
      { descriptor: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: '' },
    ]);
  });
});

describe('an instance', () => {
  test('reports events in order, and the mark after them', async () => {
    using collector = new Collector();
    const descriptor = collector.inotify.add(bytePath(directory), IN_CREATE);
    for (let n = 0; n < 1000; n++) closeSync(openSync(join(directory, `${n}`), 'w'));
    await collector.passed();
    expect(collector.events.slice(0, -1)).toEqual(
      Array.from({ length: 1000 }, (_, n) => ({ descriptor, mask: IN_CREATE, cookie: 0, name: `${n}` })),
    );
    expect(collector.events.at(-1)?.mask).toBe(IN_IGNORED);
  });

  test('loses no event while the event loop is blocked', async () => {
    using collector = new Collector();
    collector.inotify.add(bytePath(directory), IN_MOVED_TO | IN_MOVED_FROM);
    writeFileSync(join(directory, 'a'), '');
    const count = 2 * 20_000;
    const { renameSync } = await import('node:fs');
    for (let n = 0; n < count / 4; n++) {
      renameSync(join(directory, 'a'), join(directory, 'b'));
      renameSync(join(directory, 'b'), join(directory, 'a'));
    }
    await collector.passed();
    expect(collector.events).toHaveLength(count + 1);
  });

  test('throws the kernel’s errors; removing a watch twice succeeds', () => {
    using collector = new Collector();
    expect(() => collector.inotify.add(bytePath(join(directory, 'missing')), IN_CREATE)).toThrow(
      expect.objectContaining({ code: 'ENOENT', syscall: 'inotify_add_watch' }),
    );
    expect(() => collector.inotify.add(bytePath('x'.repeat(5000)), IN_CREATE)).toThrow(
      expect.objectContaining({ code: 'ENAMETOOLONG' }),
    );
    const descriptor = collector.inotify.add(bytePath(directory), IN_CREATE);
    collector.inotify.remove(descriptor);
    collector.inotify.remove(descriptor);
  });

  test('can be closed twice, and refuses calls afterwards', () => {
    const before = openInotifies();
    const collector = new Collector();
    collector.inotify.add(bytePath(directory), IN_CREATE);
    expect(openInotifies()).toBe(before + 1);
    collector[Symbol.dispose]();
    collector[Symbol.dispose]();
    expect(openInotifies()).toBe(before);
    expect(() => collector.inotify.take()).toThrow('inotify is closed');
  });

  test('is closed when its worker ends, at any point', async () => {
    const before = openInotifies();
    for (let n = 0; n < 10; n++) {
      const worker = new Worker(join(import.meta.dirname, '../../../../support/workers/inotify-worker.ts'), {
        workerData: directory,
      });
      await once(worker, 'message');
      for (let file = 0; file < 100; file++) writeFileSync(join(directory, `${file}`), '');
      await worker.terminate();
    }
    expect(openInotifies()).toBe(before);
  });
});
