import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { envctlCommand } from './programs.ts';

export interface ReportedCase {
  /** The number of the section. */
  readonly section: string;
  readonly name: string;
  readonly outcome: string;
  readonly reason: string | null;
}

interface Totals {
  readonly passed: number;
  readonly failed: number;
  readonly notRun: number;
  readonly notOffered: number;
}

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Starts `envctl conformance`, without the settings of whoever runs the tests. */
export function startConformance(...args: readonly string[]) {
  const [node, program] = envctlCommand();
  const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env;
  const env = { PATH, NODE_COMPILE_CACHE, XDG_CONFIG_HOME: '/dev/null/none', HOME: '/dev/null/none' };
  return spawn(node, [program, 'conformance', ...args], { stdio: ['ignore', 'pipe', 'pipe'], env });
}

/** Runs `envctl conformance` to its end. */
export async function conformance(...args: readonly string[]): Promise<Ended> {
  const child = startConformance(...args);
  const outputs = Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = (await once(child, 'exit')) as [number | null];
  const [stdout, stderr] = await outputs;
  return { code, stdout, stderr };
}

/** The same with `--json`; `failed` are the cases that have. */
export async function reported(...args: readonly string[]) {
  const ended = await conformance('--json', ...args);
  const lines = ended.stdout.split('\n').filter((line) => line !== '');
  const told = lines.map((line) => JSON.parse(line));
  const totals: Totals = told.at(-1) ?? { passed: 0, failed: 0, notRun: 0, notOffered: 0 };
  const results: ReportedCase[] = told.slice(0, -1);
  const failed = results.filter(({ outcome }) => outcome === 'failed');
  return { ...ended, totals, results, failed };
}
