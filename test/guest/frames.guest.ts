import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, inject, test } from 'vitest';
import { buildCounter, measure, type Pause, pauseAgain, type Touched, work } from './frames.ts';
import { Guest } from './guest.ts';
import { Machine, type Snapshot } from './machine.ts';

/** Restores of each pause; what holds over several boots and pauses: test/bench/frames.ts. */
const RESTORES = Math.min(5, Number(process.env.ENVD_GUEST_RESTORES ?? 5));
/** Of work before the pause. */
const ROUNDS = 3;
const WAYS: readonly Pause[] = ['as it is', 'collapsed'];

const booted = inject('booted') as Snapshot;
const directory = mkdtempSync(join(tmpdir(), 'envd-frames-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describe.skipIf(!booted)('the frames that a resume touches', () => {
  test('are counted, with and without a collapse before the pause', async () => {
    const library = buildCounter(directory);
    const worked = await workedMachine();
    const rows: string[] = [];
    for (const way of WAYS) {
      const paused = await pauseAgain(worked, join(directory, 'paused'), way);
      const results: Touched[] = [];
      for (let restore = 0; restore < RESTORES; restore += 1) results.push(await measure(paused, library));
      rows.push(`| ${[way, ...cells(results)].join(' | ')} |`);
      for (const { firstAnswer, init, firstCommand } of results) {
        expect(firstAnswer).toBeGreaterThan(100);
        expect(init).toBeGreaterThanOrEqual(firstAnswer);
        expect(firstCommand).toBeGreaterThanOrEqual(init);
      }
    }
    const head =
      '| frames until | the first answer | the end of /init | the first command |\n|---|---|---|---|';
    process.stdout.write(`${[head, ...rows].join('\n')}\n`);
  });
});

async function workedMachine(): Promise<Snapshot> {
  await using machine = await Machine.fork(booted, join(directory, 'worked'));
  await machine.answers();
  await work(new Guest(machine.url), ROUNDS);
  return await machine.snapshot();
}

/** Medians, with the least and the most. */
function cells(results: readonly Touched[]): string[] {
  return (['firstAnswer', 'init', 'firstCommand'] as const).map((key) => {
    const values = results.map((result) => result[key]).sort((a, b) => a - b);
    return `${values[values.length >> 1]} (${values[0]}–${values.at(-1)})`;
  });
}
