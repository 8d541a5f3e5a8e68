/**
 * The memory of the image's daemon after a day's work in a minute: calls, starts, output, large and small files, a watch.
 * Once idle, then a minute after each day, without any call meanwhile. `npm run build` first.
 * Run: `npm run bench -- day [SHARE OF A DAY] [DAYS] [SECONDS OF REST]`
 */
import { cpSync, mkdtempDisposableSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startDaemon } from '../support/programs/daemon.ts';
import { liveDay } from './day-work.ts';
import { cpuMs, printTable } from './figures.ts';

const [share = 1, days = 1, rest = 60] = process.argv.slice(2).map(Number);
/** After the start, until the daemon has trimmed its memory. */
const IDLE_MS = 15_000;

// A copy: the kernel joins pages of a file that has run for long, as this Node's has here, and then counts 2 MiB for each touch.
using image = mkdtempDisposableSync(join(tmpdir(), 'envd-day-'));
cpSync(fileURLToPath(new URL('../../dist', import.meta.url)), image.path, { recursive: true });
await using daemon = await startDaemon({ command: [join(image.path, 'bin/envd')] });
const rows = [];
await delay(IDLE_MS);
rows.push({ ...memory('idle'), 'CPU meanwhile, ms': '' });
for (let day = 1; day <= days; day++) {
  await liveDay(daemon, share);
  rows.push(memory(`after day ${day}`));
  const before = cpuMs(daemon.pid);
  await delay(rest * 1000);
  const cpu = (cpuMs(daemon.pid) - before).toFixed(0);
  rows.push({ ...memory(`${rest} s later`), 'CPU meanwhile, ms': cpu });
}
await (await fetch(`${daemon.url}/collapse`, { method: 'POST' })).text();
rows.push(memory('after /collapse'));
printTable(`MiB, days of ${share} of a day`, rows);

/** Source: proc_pid_smaps(5). */
function memory(when: string): Record<string, string> {
  const text = readFileSync(`/proc/${daemon.pid}/smaps_rollup`, 'utf8');
  const mib = (name: string) => Number(new RegExp(`^${name}: +(\\d+)`, 'm').exec(text)?.[1]) / 1024;
  const [resident, anonymous] = [mib('Rss'), mib('Anonymous')];
  return { when, resident: resident.toFixed(1), anonymous: anonymous.toFixed(1) };
}
