import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { Guest } from './guest.ts';
import { buildImage } from './image.ts';
import { Machine, type Snapshot } from './machine.ts';
import { reasonNotToRun, run } from './tools.ts';

/** Times that the machine is paused in each way, and restores of each: restores agree closely, pauses less so. */
const PAUSES = 3;
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
  test('with and without a collapse before the pause', async () => {
    const library = join(directory, 'frames.so');
    const source = fileURLToPath(new URL('frames.c', import.meta.url));
    run('cc', ['-O2', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', '-pthread', '-o', library, source]);
    const worked = await workedMachine();
    const table: Record<string, Touched[]> = { 'as it is': [], 'after /collapse': [] };
    for (let pause = 0; pause < PAUSES; pause += 1) {
      for (const [name, results] of Object.entries(table)) {
        const paused = await pauseAgain(worked, name !== 'as it is');
        results.push(...(await measure(paused, library)));
      }
    }
    process.stdout.write(`${render(table)}\n`);
    for (const results of Object.values(table)) expect(results).toHaveLength(PAUSES * RESTORES);
  });
});

/** A machine that was stopped after its daemon has worked. */
async function workedMachine(): Promise<Snapshot> {
  await using machine = await Machine.boot(buildImage(), join(directory, 'worked'));
  const guest = new Guest(machine.url);
  for (let call = 0; call < CALLS; call += 1) await guest.process.list({});
  await guest.shell('seq 100000');
  return await machine.snapshot();
}

/** The same machine, paused as the platform does it. */
async function pauseAgain(worked: Snapshot, collapsed: boolean): Promise<Snapshot> {
  await using machine = await Machine.fork(worked, join(directory, 'paused'));
  await machine.answers();
  const guest = new Guest(machine.url);
  await guest.call('POST', '/freeze?maxWaitMs=5000');
  if (collapsed) expect((await guest.call('POST', '/collapse')).status).toBe(200);
  return await machine.snapshot();
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
