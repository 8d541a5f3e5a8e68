/**
 * How long the steps of a pause take: /freeze, /collapse, a second /collapse, and /unfreeze, of an idle daemon and after a share of a
 * day's work. The image's daemon; `npm run build` first.
 * Run: `npm run bench -- pause [SHARE OF A DAY] [PAUSES]`
 */
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startDaemon } from '../support/programs/daemon.ts';
import { liveDay } from './day-work.ts';
import { median, printTable, show } from './figures.ts';

const [share = 1, pauses = 9] = process.argv.slice(2).map(Number);
/** Until the daemon has trimmed its memory. */
const IDLE_MS = 15_000;
/** Between pauses. */
const REST_MS = 1000;

const STEPS = {
  '/freeze': '/freeze?maxWaitMs=1000',
  '/collapse': '/collapse',
  '/collapse again': '/collapse',
  '/unfreeze': '/unfreeze',
};
type Step = keyof typeof STEPS;

const program = process.env.ENVD_PROGRAM ?? fileURLToPath(new URL('../../dist/bin/envd', import.meta.url));
await using daemon = await startDaemon({ command: [program] });
const rows: Record<string, string>[] = [];
await delay(IDLE_MS);
rows.push(...(await pauseOften('idle')));
await liveDay(daemon, share);
rows.push(...(await pauseOften(`after ${share} of a day`)));
printTable(`Milliseconds of ${pauses} pauses each`, rows);

async function pauseOften(when: string): Promise<Record<string, string>[]> {
  const times = new Map<Step, number[]>(Object.keys(STEPS).map((step) => [step as Step, []]));
  const told = new Map<Step, string>();
  for (let pause = 0; pause < pauses; pause++) {
    await delay(REST_MS);
    for (const [step, path] of Object.entries(STEPS) as [Step, string][]) {
      const started = performance.now();
      const response = await fetch(daemon.url + path, { method: 'POST' });
      const text = await response.text();
      times.get(step)?.push(performance.now() - started);
      if (!response.ok) throw new Error(`${path}: ${text}`);
      told.set(step, text);
    }
  }
  return Array.from(times, ([step, each]) => {
    const { collapsed = '', alreadyHuge = '' } = told.get(step) ? JSON.parse(told.get(step) ?? '{}') : {};
    return {
      when,
      step,
      median: show(median(each)),
      least: show(Math.min(...each)),
      most: show(Math.max(...each)),
      'collapsed, last': String(collapsed),
      'already huge, last': String(alreadyHuge),
    };
  });
}
