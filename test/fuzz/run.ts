import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { buildC, buildTypeScript, type Program } from './build.ts';
import { CORPUS, FUZZ, targets } from './targets.ts';

/*
 * Usage: npm run fuzz -- [--merge] [TARGET…]. Runs each fuzz target for ENVD_FUZZ_SECONDS, one after the other: those in C
 * by libFuzzer, those in TypeScript by Jazzer.js, which is libFuzzer, too. What they find for their corpora is kept in
 * .fuzz/found; --merge takes what reaches code that the corpora in corpus/ do not reach. An input that is a bug is left in
 * .fuzz/bugs. Exit code 1: there is one.
 */

const SECONDS = Number(process.env.ENVD_FUZZ_SECONDS ?? 60);
/** Inputs that take longer are bugs, in seconds. */
const SLOW = 5;
const MEMORY_MIB = 2048;

interface Result {
  readonly target: string;
  readonly runs: number;
  readonly coverage: string;
  readonly bug: string;
}

const [wanted, shouldMerge] = options(process.argv.slice(2));
const results = [];
for (const target of targets().filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
  const program = target.language === 'c' ? buildC(target.name) : await buildTypeScript(target.name);
  results.push(fuzz(target.name, program));
  if (shouldMerge) merge(target.name, program);
}
if (results.length === 0) throw new Error(`no such target: there are ${targets().map(({ name }) => name)}`);
process.stdout.write(`${JSON.stringify(results, null, 2)}\n`);
process.exitCode = results.some(({ bug }) => bug !== '') ? 1 : 0;

function options(given: readonly string[]): readonly [string[], boolean] {
  return [given.filter((one) => one !== '--merge'), given.includes('--merge')];
}

function fuzz(target: string, program: Program): Result {
  const found = `${FUZZ}/found/${target}`;
  const bugs = `${FUZZ}/bugs/${target}-`;
  for (const directory of [found, `${FUZZ}/bugs`, `${CORPUS}/${target}`])
    mkdirSync(directory, { recursive: true });
  const flags = [
    `-max_total_time=${SECONDS}`,
    `-timeout=${SLOW}`,
    `-rss_limit_mb=${MEMORY_MIB}`,
    `-artifact_prefix=${bugs}`,
  ];
  process.stdout.write(`${target}: ${SECONDS} s\n`);
  const text = run(program, [found, `${CORPUS}/${target}`], flags);
  const [, runs = 0, coverage = ''] = /^#(\d+)\s+DONE\s+(cov: \d+ ft: \d+ corp: \d+)/m.exec(text) ?? [];
  const bug = /Test unit written to (\S+)/.exec(text)?.[1] ?? (coverage === '' ? 'it did not run' : '');
  if (bug !== '') process.stdout.write(`${text.slice(-4000)}\n`);
  return { target, runs: Number(runs), coverage, bug };
}

/** Takes the inputs that reach code which no other one reaches. */
function merge(target: string, program: Program): void {
  const flags = [
    '-merge=1',
    '-use_counters=0',
    `-timeout=${SLOW}`,
    `-artifact_prefix=${FUZZ}/bugs/${target}-`,
  ];
  run(program, [`${CORPUS}/${target}`, `${FUZZ}/found/${target}`], flags);
  rmSync(`${FUZZ}/found/${target}`, { recursive: true });
  process.stdout.write(`${target}: ${readdirSync(`${CORPUS}/${target}`).length} inputs\n`);
}

function run(
  { command, args, env }: Program,
  directories: readonly string[],
  flags: readonly string[],
): string {
  const dashes = args.length > 0 ? ['--'] : [];
  const { stdout, stderr, error } = spawnSync(command, [...args, ...directories, ...dashes, ...flags], {
    cwd: fileURLToPath(new URL('../..', import.meta.url)),
    env: { ...process.env, ...env },
    encoding: 'utf8',
    maxBuffer: 1024 ** 3,
  });
  if (error) throw error;
  return stdout + stderr;
}
