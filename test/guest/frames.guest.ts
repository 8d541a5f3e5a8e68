import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { booted, whenBooted } from '../support/guest/booted.ts';
import {
  buildCounter,
  measure,
  type Pause,
  pauseAgain,
  type Touched,
  work,
} from '../support/guest/frames.ts';
import { Guest } from '../support/guest/guest.ts';
import { Machine, type Snapshot } from '../support/guest/machine.ts';

/** Restores of each pause; test/bench/frames.ts compares several boots and pauses. */
const RESTORES = Math.min(5, Number(process.env.ENVD_GUEST_RESTORES ?? 5));
/** Of each variant: in so short a time V8 may compile or collect by chance, but not in all of them. */
const PAUSES = 2;
/** Rounds of work before the pause. */
const ROUNDS = 3;
const WAYS: readonly Pause[] = ['as it is', 'collapsed'];

const directory = mkdtempSync(join(tmpdir(), 'envd-frames-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describe('the frames that a resume touches', whenBooted, () => {
  test('are counted, and after a collapse they are about as many until the first answer', async () => {
    const library = buildCounter(directory);
    const worked = await workedMachine();
    const rows: string[] = [];
    const untilAnswer: Record<string, number> = {};
    for (const way of WAYS) {
      const results: Touched[] = [];
      for (let pause = 0; pause < PAUSES; pause += 1) {
        const paused = await pauseAgain(worked, join(directory, 'paused'), way);
        for (let restore = 0; restore < RESTORES; restore += 1) results.push(await measure(paused, library));
      }
      untilAnswer[way] = median(results, 'firstAnswer');
      rows.push(`| ${[way, ...cells(results)].join(' | ')} |`);
      for (const { firstAnswer, init, firstCommand } of results) {
        expect(firstAnswer).toBeGreaterThan(100);
        expect(init).toBeGreaterThanOrEqual(firstAnswer);
        expect(firstCommand).toBeGreaterThanOrEqual(init);
      }
    }
    const head =
      '| frames until | the first answer | the end of /init | the first command | the same, of 2 MiB |\n|---|---|---|---|---|';
    process.stdout.write(`${[head, ...rows].join('\n')}\n`);
    // Boots and pauses differ by more than a tenth, so this finds a multiple only. The figures are the benchmark's: test/bench/frames.ts.
    expect(untilAnswer.collapsed).toBeLessThan(1.5 * (untilAnswer['as it is'] ?? 0));
  });
});

async function workedMachine(): Promise<Snapshot> {
  await using machine = await Machine.fork(booted, join(directory, 'worked'));
  await machine.answers();
  await work(new Guest(machine.url), ROUNDS);
  return await machine.snapshot();
}

type Key = 'firstAnswer' | 'init' | 'firstCommand' | 'largeFirstCommand';

function sorted(results: readonly Touched[], key: Key): number[] {
  return results.map((result) => result[key]).sort((a, b) => a - b);
}

function median(results: readonly Touched[], key: Key): number {
  return sorted(results, key)[results.length >> 1] ?? 0;
}

/** Medians, with minimum and maximum. */
function cells(results: readonly Touched[]): string[] {
  return (['firstAnswer', 'init', 'firstCommand', 'largeFirstCommand'] as const).map((key) => {
    const values = sorted(results, key);
    return `${median(results, key)} (${values[0]}–${values.at(-1)})`;
  });
}
