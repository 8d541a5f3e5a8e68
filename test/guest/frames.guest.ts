import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { Guest } from './guest.ts';
import { buildImage } from './image.ts';
import { Machine, type Snapshot } from './machine.ts';
import { reasonNotToRun, run } from './tools.ts';

const RESTORES = 5;
/** Calls before the pause: a daemon that has worked. */
const CALLS = 200;

/** Frames of 4 KiB that the guest has touched since it was restored. */
interface Touched {
  readonly firstAnswer: number;
  readonly init: number;
  readonly firstCommand: number;
}

const reason = reasonNotToRun();
const directory = mkdtempSync(join(tmpdir(), 'envd-frames-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describe.skipIf(reason)('the frames that a resume touches', () => {
  test('are fewer after a collapse', async () => {
    const library = join(directory, 'frames.so');
    const source = fileURLToPath(new URL('frames.c', import.meta.url));
    run('cc', ['-O2', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', '-pthread', '-o', library, source]);
    const { asIs, collapsed } = await pauseTwice();
    const table = {
      'as it is': await measure(asIs, library),
      'after /collapse': await measure(collapsed, library),
    };
    process.stdout.write(`${render(table)}\n`);
    const median = (name: keyof typeof table) => sorted(table[name], 'init')[RESTORES >> 1] ?? 0;
    expect(median('after /collapse')).toBeLessThan(median('as it is'));
  });
});

/** One machine, stopped just before and just after its daemon collapses its memory. */
async function pauseTwice(): Promise<{ asIs: Snapshot; collapsed: Snapshot }> {
  const machine = await Machine.boot(buildImage(), join(directory, 'machine'));
  try {
    const guest = new Guest(machine.url);
    for (let call = 0; call < CALLS; call += 1) await guest.process.list({});
    await guest.shell('seq 100000');
    await guest.call('POST', '/freeze?maxWaitMs=5000');
    const asIs = await machine.copy(join(directory, 'as-it-is'));
    await guest.call('POST', '/collapse');
    return { asIs, collapsed: await machine.snapshot() };
  } finally {
    await machine[Symbol.asyncDispose]();
  }
}

async function measure(snapshot: Snapshot, library: string): Promise<Touched[]> {
  const counter = join(directory, 'count');
  const env = {
    LD_PRELOAD: library,
    ENVD_FRAMES_MEMORY: join(snapshot.directory, 'memory'),
    ENVD_FRAMES_COUNT: counter,
  };
  const count = () => Number(readFileSync(counter).readBigUInt64LE());
  const results: Touched[] = [];
  for (let round = 0; round < RESTORES; round += 1) {
    rmSync(counter, { force: true });
    await using machine = await Machine.restore(snapshot, env);
    await machine.answers();
    const firstAnswer = count();
    const guest = new Guest(machine.url);
    await guest.init({ accessToken: 'secret', timestamp: new Date() });
    const init = count();
    await guest.shell('true');
    results.push({ firstAnswer, init, firstCommand: count() });
  }
  return results;
}

function sorted(results: readonly Touched[], key: keyof Touched): number[] {
  return results.map((result) => result[key]).sort((a, b) => a - b);
}

/** Medians, with the least and the most. */
function render(table: Readonly<Record<string, readonly Touched[]>>): string {
  const rows = Object.entries(table).map(([name, results]) => {
    const cells = (['firstAnswer', 'init', 'firstCommand'] as const).map((key) => {
      const values = sorted(results, key);
      return `${values[values.length >> 1]} (${values[0]}–${values.at(-1)})`;
    });
    return `| ${name} | ${cells.join(' | ')} |`;
  });
  return [
    '| frames until | the first answer | the end of /init | the first command |',
    '|---|---|---|---|',
    ...rows,
  ].join('\n');
}
