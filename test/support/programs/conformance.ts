import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('../../conformance/run.ts', import.meta.url));

interface Result {
  readonly name: string;
  readonly outcome: string;
  readonly reason?: string;
}

interface Report {
  readonly totals: { readonly passed: number; readonly failed: number; readonly notRun: number };
  readonly sections: readonly { readonly results: readonly Result[] }[];
}

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `npm run conformance` with these arguments to its end. */
export async function conformance(...args: readonly string[]): Promise<Ended> {
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const outputs = Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = (await once(child, 'exit')) as [number | null];
  const [stdout, stderr] = await outputs;
  return { code, stdout, stderr };
}

/** The same with a report in `file`; `failed` are the cases that have. */
export async function reported(file: string, ...args: readonly string[]) {
  const ended = await conformance('--report', file, ...args);
  const report = JSON.parse(readFileSync(file, 'utf8')) as Report;
  const results = report.sections.flatMap((section) => section.results);
  const failed = results.filter(({ outcome }) => outcome === 'failed');
  return { ...ended, report, results, failed };
}
