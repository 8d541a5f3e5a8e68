import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildImage } from '../support/guest/image.ts';
import { reasonNotToRun } from '../support/guest/tools.ts';
import { reasonAgainst } from '../support/machine/machine.ts';
import { type Result, soak } from './soak.ts';
import { startHere, startInGuest } from './subject.ts';

const USAGE = `npm run soak -- [MINUTES] [OPTION…]

Uses two daemons for everything at once, below a service manager, as root: one is never ended, the other one is killed, replaced
and restarted all the time. Both are attacked by processes of the guest. All bytes are compared; what the daemons hold is
sampled, and fitted to a line. Exit code 1: an invariant is broken, or something grows by more than it may; 2: bad arguments, or it cannot run here.

  MINUTES           how long (default: 20)
  --every SECONDS   from sample to sample (default: 60)
  --warm-up MINUTES what is sampled before does not count (default: a quarter of the time)
  --report FILE     a report in JSON
  --guest           the daemons of the image, in a guest each, below systemd, without the attackers (npm run soak -- --guest)
`;

const PACKAGES = fileURLToPath(new URL('../../.ci/packages', import.meta.url));
const NEEDS = ['root', 'cgroup v2', 'python3', 'bindfs', 'fuse'] as const;

interface Settings {
  readonly minutes: number;
  readonly everyMs: number;
  readonly warmUpHours: number | null;
  readonly report: string | null;
  readonly guest: boolean;
}

const print = (text: string) => process.stdout.write(`${text}\n`);

process.exitCode = await main();

async function main(): Promise<number> {
  let settings: Settings;
  try {
    settings = readSettings(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`soak: ${(error as Error).message}\n\n${USAGE}`);
    return 2;
  }
  const { guest, report, ...options } = settings;
  // What is still missing then is told below.
  if (guest) spawnSync('sh', [PACKAGES, 'guest'], { stdio: 'inherit' });
  const reason = guest ? reasonNotToRun() : NEEDS.map(reasonAgainst).find((one) => one !== null);
  if (reason) {
    process.stderr.write(`soak: it cannot run here: ${reason}\n`);
    return 2;
  }
  const image = guest ? buildImage() : null;
  const start = () => (image ? startInGuest(image) : startHere());
  const interruption = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interruption.abort());
  const onProgress = (text: string) => process.stderr.write(`${text}\n`);
  const shared = { ...options, interrupted: interruption.signal, onProgress };
  const results = await Promise.all([false, true].map((isEnded) => soak(start, { ...shared, isEnded })));
  if (report) writeFileSync(report, `${JSON.stringify(results, null, 2)}\n`);
  for (const result of results) tell(result);
  const isBroken = ({ broken, growths }: Result) => broken.length > 0 || growths.some((one) => one.isBroken);
  return results.some(isBroken) ? 1 : 0;
}

function tell({ name, rounds, samples, growths, errors, broken }: Result): void {
  print(`\n## The daemon that was ${name}\n`);
  const done = Object.entries(rounds).map(([what, count]) => `${count} ${what}`);
  print(`${done.join(', ')}; ${samples.length} samples.\n`);
  const rows = growths.map(({ figure, first, last, perHour, margin, bound, isBroken }) => [
    figure,
    ...[first, last].map((value) => `${Math.round(10 * value) / 10}`),
    `${perHour.toFixed(1)} ± ${margin.toFixed(1)}`,
    Number.isFinite(bound) ? `${bound}` : '',
    isBroken ? 'GROWS' : '',
  ]);
  const head = ['what', 'first', 'last', 'an hour, 95 %', 'bound', ''];
  const widths = head.map((_, column) => Math.max(...[head, ...rows].map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  print([line(head), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)].join('\n'));
  for (const [message, count] of Object.entries(errors)) print(`in the log ${count} times: ${message}`);
  for (const one of broken) print(`BROKEN: ${one}`);
}

function readSettings(argv: readonly string[]): Settings {
  const text = { type: 'string' } as const;
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: { every: text, 'warm-up': text, report: text, guest: { type: 'boolean', default: false } },
  });
  const number = (name: string, given: string | undefined, otherwise: number) => {
    const value = given === undefined ? otherwise : Number(given);
    if (!(value > 0)) throw new Error(`${name} is a positive number, not '${given}'`);
    return value;
  };
  const minutes = number('MINUTES', positionals[0], 20);
  return {
    minutes,
    everyMs: number('--every', values.every, 60) * 1000,
    warmUpHours: values['warm-up'] === undefined ? null : number('--warm-up', values['warm-up'], 0) / 60,
    report: values.report ?? null,
    guest: values.guest,
  };
}
