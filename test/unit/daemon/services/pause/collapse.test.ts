import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { native } from '../../../../../src/daemon/linux/system/native.ts';
import { Collapser, type CollapseStatistics } from '../../../../../src/daemon/services/pause/collapse.ts';
import { needs } from '../../../../support/machine/needs.ts';

const WINDOW_MIB = 2;
/** khugepaged may collapse a window or two meanwhile. */
const MOST_BY_OTHERS_MIB = 2 * WINDOW_MIB;
const never = new AbortController().signal;

/** What `heap.ts` reports: it runs in a process of its own, so that its huge pages can be counted. */
interface Collapsed {
  readonly statistics: CollapseStatistics;
  /** Growth of AnonHugePages from before the first collapse to after the last, in MiB. */
  readonly grownMib: number;
}

async function collapseInChild(task: string): Promise<Collapsed[]> {
  const child = fork(new URL('../../../../support/workers/heap.ts', import.meta.url), [task], {
    execArgv: ['--expose-gc'],
  });
  const results: Collapsed[] = [];
  child.on('message', (message) => results.push(message as Collapsed));
  const [code] = await once(child, 'close');
  expect(code).toBe(0);
  return results;
}

function chunksOf({ collapsed, alreadyHuge, skipped }: CollapseStatistics): number {
  return collapsed + alreadyHuge + skipped;
}

describe('collapsing a large heap', () => {
  test('grows the huge pages by the collapsed windows, and a second time by nothing', async () => {
    // Whether a window was huge before is told by the numbers of its frames.
    needs('root');
    const [first, second] = await collapseInChild('twice');
    if (!first || !second) throw new Error('no answer');
    expect(first.statistics.collapsed + first.statistics.alreadyHuge).toBeGreaterThan(30);
    expect(chunksOf(first.statistics)).toBe(first.statistics.chunks);
    const told = first.statistics.collapsed * WINDOW_MIB;
    expect(Math.abs(first.grownMib - told)).toBeLessThanOrEqual(MOST_BY_OTHERS_MIB);
    expect(chunksOf(second.statistics)).toBe(second.statistics.chunks);
    expect(second.statistics.alreadyHuge).toBeGreaterThanOrEqual(first.statistics.collapsed - 2);
    expect(second.statistics.collapsed).toBeLessThanOrEqual(2);
  });

  test('stops when cancelled and counts the rest as skipped', async () => {
    const [cancelled, aborted] = await collapseInChild('cancel');
    if (!cancelled || !aborted) throw new Error('no answer');
    const { chunks, collapsed, skipped } = cancelled.statistics;
    expect(chunks).toBeGreaterThan(30);
    expect(collapsed + skipped).toBe(chunks);
    // The pool thread may collapse some windows before the cancel, but not all.
    expect(skipped).toBeGreaterThan(0);
    expect(Math.abs(cancelled.grownMib - collapsed * WINDOW_MIB)).toBeLessThanOrEqual(MOST_BY_OTHERS_MIB);
    expect(aborted.grownMib).toBeLessThan(chunks * WINDOW_MIB);
  });

  test('keeps the content while threads and the garbage collector run', async () => {
    const rounds = await collapseInChild('load');
    expect(rounds.length).toBe(8);
    expect(rounds.every(({ statistics }) => chunksOf(statistics) === statistics.chunks)).toBe(true);
  });
});

describe('Collapser', () => {
  test('returns the statistics in the documented order, in whole milliseconds', async () => {
    const statistics = await new Collapser().collapse(never);
    expect(Object.keys(statistics).join(' ')).toBe('regions chunks collapsed alreadyHuge skipped elapsedMs');
    expect(Object.values(statistics).every(Number.isInteger)).toBe(true);
    expect(chunksOf(statistics)).toBe(statistics.chunks);
  });

  test('refuses a second collapse until the first has ended', async () => {
    const collapser = new Collapser();
    const first = collapser.collapse(never);
    await expect(collapser.collapse(never)).rejects.toMatchObject({ kind: 'unavailable' });
    await first;
    await expect(collapser.collapse(never)).resolves.toHaveProperty('chunks');
  });

  test('drops caches, and then collects garbage', async () => {
    const kept: object[] = [{ large: 'answer' }];
    const answer = new WeakRef(kept[0] ?? {});
    // A WeakRef keeps its target until the job that made it ends.
    await nextTurn();
    await new Collapser(undefined, () => kept.splice(0)).collapse(never);
    expect(answer.deref()).toBeUndefined();
  });

  test('a trim frees them, too', async () => {
    const kept: object[] = [{ large: 'answer' }];
    const answer = new WeakRef(kept[0] ?? {});
    await nextTurn();
    new Collapser(undefined, () => kept.splice(0)).trim(false);
    expect(answer.deref()).toBeUndefined();
  });

  test('ends when its signal is aborted', async () => {
    const collapser = new Collapser();
    const gone = new Error('client disconnected');
    await expect(collapser.collapse(AbortSignal.abort(gone))).rejects.toBe(gone);
    await expect(collapser.collapse(never)).resolves.toHaveProperty('chunks');
  });
});

/** Virtual memory of this process, in KiB. */
function virtualKib(): number {
  return Number(/^VmSize:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]);
}

test('the address space is reserved once for all threads', () => {
  native.reserveAddressSpace();
  const reserved = virtualKib();
  expect(reserved).toBeGreaterThan(2 ** 35);
  native.reserveAddressSpace();
  expect(virtualKib() - reserved).toBeLessThan(2 ** 20);
});
