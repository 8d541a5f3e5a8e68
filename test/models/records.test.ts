import { expect, test, vi } from 'vitest';
import type { StoredDescriptor } from '../../src/daemon/linux/system/systemd.ts';
import { RecordStore } from '../../src/daemon/services/records/record-store.ts';
import { Kernel, Killed } from './kernel.ts';

/*
 * The real store of records over a kernel in memory: a program is killed before each of its calls, the next one, which recovers,
 * before each of its own, and so on. Whatever was recorded is found, as it was recorded last.
 */

let kernel = new Kernel();

vi.mock(import('../../src/daemon/linux/memory/message-queue.ts'), async (importOriginal) => {
  const original = await importOriginal();
  return {
    ...original,
    openQueue: () => kernel.queue(),
    appendMessage: (writing, message) => kernel.send(writing, message),
    firstMessage: (reading) => kernel.first(reading),
    dropFirstMessage: (reading) => kernel.drop(reading),
    closeAll: (descriptors) => {
      for (const descriptor of descriptors) kernel.close(descriptor);
    },
  };
});

vi.mock(import('../../src/daemon/linux/system/systemd.ts'), async (importOriginal) => ({
  ...(await importOriginal()),
  storeDescriptor: (_socket, stored) => kernel.store(stored),
  removeDescriptor: (_socket, name) => kernel.unstore(name),
}));

vi.mock(import('node:fs'), async (importOriginal) => {
  const original = await importOriginal();
  return {
    ...original,
    closeSync: (descriptor) => {
      if (!kernel.close(descriptor)) original.closeSync(descriptor);
    },
  };
});

/** What is recorded: the values that a key may have, the first one being that of the last change that was completed. */
class Expected {
  readonly #values = new Map<string, (number | null)[]>();

  /** Makes a change, which is completed if `work` returns. */
  change(key: string, value: number | null, work: () => void): void {
    const [before = null] = this.#values.get(key) ?? [];
    this.#values.set(key, [before, value]);
    work();
    this.#values.set(key, [value]);
  }

  get living(): string[] {
    return [...this.#values].flatMap(([key, [value]]) =>
      value === null || value === undefined ? [] : [key],
    );
  }

  /** Compares with what was found, which is so from now on. */
  compare(found: ReadonlyMap<string, number>, how: string): void {
    for (const key of new Set([...this.#values.keys(), ...found.keys()])) {
      const value = found.get(key) ?? null;
      expect(this.#values.get(key) ?? [null], `${key} ${how}`).toContain(value);
      this.#values.set(key, [value]);
    }
  }
}

const store = () => new RecordStore('manager', { build: 'test' }, (reason) => expect.fail(reason));
/** The file of a record is told by its value. */
const set = (record: ReturnType<RecordStore['record']>, value: number, isLast = false) => {
  const descriptor = kernel.file(value);
  record.set({ value }, { file: descriptor }, isLast);
  kernel.close(descriptor);
};

/** Changes records as processes that start, change and end do. */
function work(expected: Expected): void {
  const records = store();
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((key) => records.record(key));
  if (!a || !b || !c || !d) return;
  expected.change('a', 1, () => set(a, 1));
  expected.change('b', 2, () => set(b, 2));
  expected.change('a', 3, () => set(a, 3));
  expected.change('c', 4, () => set(c, 4, true));
  expected.change('d', 5, () => set(d, 5, true));
  expected.change('b', null, () => b.drop());
  expected.change('c', null, () => c.drop());
  expected.change('a', 6, () => set(a, 6, true));
  expected.change('b', 7, () => set(b, 7));
}

/** Recovers as a daemon does that comes after a kill: what is found is recorded again, then forgotten. */
function recover(expected: Expected, stored: readonly StoredDescriptor[], how: string): void {
  const records = store();
  const { records: found, forget } = records.recover(stored);
  const values = new Map(found.map(({ key, state }) => [key, (state as { value: number }).value]));
  for (const { key, descriptors } of found)
    expect(kernel.fileOf(descriptors.file ?? -1), `the file of ${key} ${how}`).toBe(values.get(key));
  expected.compare(values, how);
  // Every other one has ended meanwhile.
  for (const [index, [key, value]] of [...values].entries())
    expected.change(key, value + 100, () => set(records.record(key), value + 100, index % 2 === 1));
  for (const key of values.keys()) forget(key);
}

/** Continues as the next program of the same process does: all is recorded again, then the earlier queues are dropped. */
function upgrade(expected: Expected, stored: readonly StoredDescriptor[]): void {
  const records = store();
  for (const key of expected.living) {
    const value = 1000 + key.charCodeAt(0);
    expected.change(key, value, () => set(records.record(key), value));
  }
  records.discard(stored);
}

type Program = (expected: Expected, stored: readonly StoredDescriptor[], how: string) => void;

/** Runs a program; returns whether it was killed, and the number of its calls. */
function run(
  program: Program,
  expected: Expected,
  killedBefore: number,
  how: string,
): { killed: boolean; calls: number } {
  const stored = kernel.begin(killedBefore);
  try {
    program(expected, stored, how);
    return { killed: false, calls: kernel.calls };
  } catch (error) {
    if (!(error instanceof Killed)) throw error;
    return { killed: true, calls: kernel.calls };
  }
}

/** Kills the programs before any of their calls, in all combinations; each but the last is followed by the next. */
function killAll(programs: readonly Program[], kills: readonly number[] = []): number {
  let runs = 0;
  for (let kill = 0; ; kill += 1) {
    kernel = new Kernel();
    const expected = new Expected();
    const how = `after kills at ${[...kills, kill]}`;
    kills.forEach((at, index) => {
      const program = programs[index];
      if (program) run(program, expected, at, how);
    });
    const program = programs[kills.length];
    if (!program) throw new Error('there are as many programs as kills');
    const { killed } = run(program, expected, kill, how);
    runs += 1;
    if (kills.length + 1 < programs.length) runs += killAll(programs, [...kills, kill]);
    else settled(expected, how);
    if (!killed) return runs;
  }
}

/** What nobody kills finds everything, and leaves one message for each record. */
function settled(expected: Expected, how: string): void {
  run(recover, expected, Number.POSITIVE_INFINITY, how);
  expect(kernel.messages, `messages ${how}`).toBe(expected.living.length);
}

const upgraded: Program = (expected, stored, how) => {
  recover(expected, stored, how);
  upgrade(expected, kernel.again());
};

/** How many daemons in a row are killed: ENVD_MODEL_KILLS=3 takes half a minute. */
const KILLS = Number(process.env.ENVD_MODEL_KILLS ?? 2);

test.each([
  ['the daemon and those after it', [work, ...Array<Program>(KILLS - 1).fill(recover)], 400],
  ['the daemon and one that recovers and is upgraded', [work, upgraded], 600],
] as const)('whatever is recorded is found, whichever calls are the last of %s', (_, programs, least) => {
  const runs = killAll(programs);
  process.stderr.write(`${runs} runs\n`);
  expect(runs).toBeGreaterThan(least);
});
