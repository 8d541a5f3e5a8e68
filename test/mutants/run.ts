import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type Mutant, mutantsIn, sampleOf } from './choice.ts';
import { Isolation, reasonNotToRun } from './isolation.ts';
import { Judge, type Verdict } from './judge.ts';
import { Rooms } from './rooms.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');
const COUNT = 25;
const LIMIT_SECONDS = 300;

const USAGE = `npm run mutants -- [COUNT] [OPTION…]

Changes one operator, condition, value or statement of src/ at a time, and tells which changes no test has found. The tests run
where a changed daemon can do no harm, as root. Exit code 0, whatever survives; 2: bad arguments, or it cannot run here.

  COUNT             mutants by chance (default: ${COUNT}; with --at: all there)
  --seed N          the same seed chooses the same ones (default: by the clock)
  --from N          begins at the Nth of them, to go on with a sample that was ended
  --only GLOB       files of src/: 'src/daemon/os/**'
  --at FILE:LINE    the mutants of a line; may be repeated
  --minutes M       begins none after that time
  --quick           without the tests of test/attack
  --limit SECONDS   for a run of tests, after which the mutant counts as found (default: ${LIMIT_SECONDS})
  --report FILE     a report in JSON, after each mutant
  --list            tells the mutants and runs nothing
`;

interface Settings {
  readonly mutants: readonly Mutant[];
  readonly all: number;
  readonly seed: number;
  readonly until: number;
  readonly isQuick: boolean;
  readonly limitMs: number;
  readonly report: string | null;
  readonly list: boolean;
}

const print = (text: string) => process.stdout.write(`${text}\n`);
const brief = (text: string) => {
  const line = text.replaceAll(/\s+/g, ' ');
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
};
const describe = ({ file, line, kind, before, after }: Mutant) =>
  `${file}:${line} ${kind}: ${brief(before)} → ${brief(after)}`;

process.exitCode = await main();

async function main(): Promise<number> {
  let settings: Settings;
  try {
    settings = readSettings(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`mutants: ${(error as Error).message}\n\n${USAGE}`);
    return 2;
  }
  if (settings.list) {
    for (const mutant of settings.mutants) print(describe(mutant));
    return 0;
  }
  const reason = reasonNotToRun();
  if (reason !== null) {
    process.stderr.write(`mutants: they cannot be isolated here: ${reason}\n`);
    return 2;
  }
  await judgeAll(settings);
  return 0;
}

async function judgeAll({ mutants, all, seed, until, isQuick, limitMs, report }: Settings): Promise<void> {
  print(`${mutants.length} of ${all} mutants, seed ${seed}`);
  await using isolation = new Isolation();
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => isolation[Symbol.asyncDispose]().finally(() => process.exit(1)));
  const judge = new Judge(ROOT, isolation, new Rooms(ROOT, isQuick), limitMs);
  const verdicts: Verdict[] = [];
  for (const mutant of mutants) {
    if (Date.now() > until) break;
    const verdict = await judge.verdictOn(mutant);
    verdicts.push(verdict);
    print(`${verdict.outcome.padEnd(9)}  ${describe(verdict)}  (${verdict.seconds} s)`);
    if (verdict.by) print(`           by ${verdict.by}`);
    if (report)
      writeFileSync(report, `${JSON.stringify({ seed, unusable: judge.unusable, verdicts }, null, 2)}\n`);
  }
  summarise(verdicts, judge.unusable);
}

function summarise(verdicts: readonly Verdict[], unusable: readonly string[]): void {
  const count = (outcome: Verdict['outcome']) =>
    verdicts.filter((verdict) => verdict.outcome === outcome).length;
  const found = count('killed') + count('timed out');
  const share = verdicts.length === 0 ? 0 : Math.round((100 * found) / verdicts.length);
  print(
    `\n${count('killed')} killed, ${count('timed out')} timed out, ${count('survived')} survived: ${share} % found`,
  );
  for (const file of unusable) print(`not used, as it fails without a change: ${file}`);
}

function readSettings(argv: readonly string[]): Settings {
  const text = { type: 'string' } as const;
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      ...{ seed: text, from: text, only: text, minutes: text, limit: text, report: text },
      at: { type: 'string', multiple: true },
      ...{ quick: { type: 'boolean' }, list: { type: 'boolean' } },
    },
  });
  const number = (name: string, given: string | undefined, otherwise: number) => {
    const value = given === undefined ? otherwise : Number(given);
    if (!(value > 0)) throw new Error(`${name} is a positive number, not '${given}'`);
    return value;
  };
  const all = mutantsIn(ROOT, { only: values.only ?? null, at: values.at ?? [] });
  const seed = number('--seed', values.seed, Date.now() % 1_000_000);
  const count = number('COUNT', positionals[0], values.at || values.list ? all.length : COUNT);
  return {
    mutants: sampleOf(all, count, seed).slice(number('--from', values.from, 1) - 1),
    all: all.length,
    seed,
    until: Date.now() + number('--minutes', values.minutes, Number.MAX_SAFE_INTEGER / 1e6) * 60_000,
    isQuick: values.quick ?? false,
    limitMs: number('--limit', values.limit, LIMIT_SECONDS) * 1000,
    report: values.report ?? null,
    list: values.list ?? false,
  };
}
