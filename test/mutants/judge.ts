import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ReportedCase } from '../support/programs/conformance.ts';
import type { Mutant } from './choice.ts';
import type { Isolation } from './isolation.ts';
import { mutated } from './mutations.ts';
import type { Rooms, Stage } from './rooms.ts';

export interface Verdict extends Mutant {
  readonly outcome: 'killed' | 'survived' | 'timed out';
  /** The test that found it. */
  readonly by?: string;
  readonly seconds: number;
}

/** The part of vitest's report in JSON that is used here. */
interface TestReport {
  readonly success: boolean;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

/** A test that has failed: its file or section, and its name. */
interface Failure {
  readonly where: string;
  readonly name: string;
}

type TestRun = { readonly passed: true } | { readonly passed: false; readonly failure: Failure | null };

const REPORT = '/var/tmp/report.json';
const NODE = 'node_modules/.bin/node';
const VITEST =
  `${NODE} node_modules/vitest/vitest.mjs run --config test/vitest.config.ts` +
  ` --bail=1 --maxWorkers=1 --reporter=json --outputFile=${REPORT}`;
const CONTRACT = `${NODE} test/mutants/contract.ts ${REPORT}`;

/**
 * Lets the tests find mutants. A test that fails without the change too does not count: its file is run once without, and
 * is left out from then on.
 */
export class Judge {
  readonly #root: string;
  readonly #isolation: Isolation;
  readonly #rooms: Rooms;
  readonly #limitMs: number;
  /** Test files and sections by whether they pass without a change. */
  readonly #passes = new Map<string, boolean>();

  constructor(root: string, isolation: Isolation, rooms: Rooms, limitMs: number) {
    this.#root = root;
    this.#isolation = isolation;
    this.#rooms = rooms;
    this.#limitMs = limitMs;
  }

  /** Test files and sections that do not pass as they are. */
  get unusable(): string[] {
    return Array.from(this.#passes).flatMap(([file, passes]) => (passes ? [] : [file]));
  }

  async verdictOn(mutant: Mutant): Promise<Verdict> {
    const started = performance.now();
    const told = await this.#find(mutant);
    return { ...mutant, ...told, seconds: Math.round((performance.now() - started) / 100) / 10 };
  }

  async #find(mutant: Mutant): Promise<Pick<Verdict, 'outcome' | 'by'>> {
    for (const stage of this.#rooms.stagesOf(mutant.file)) {
      const found = await this.#findIn(stage, mutant);
      if (found) return found;
    }
    return { outcome: 'survived' };
  }

  /** Null: no test of the stage has found it. */
  async #findIn({ kind, names }: Stage, mutant: Mutant): Promise<Pick<Verdict, 'outcome' | 'by'> | null> {
    for (;;) {
      const usable = names.filter((name) => this.#passes.get(name) !== false);
      const run: TestRun =
        usable.length === 0 ? { passed: true } : await this.#test({ kind, names: usable }, mutant);
      if (run.passed) return null;
      const { failure } = run;
      if (!(await this.#pass({ kind, names: failure ? [failure.where] : usable }))) continue;
      return failure
        ? { outcome: 'killed', by: `${failure.where}: ${failure.name}` }
        : { outcome: 'timed out' };
    }
  }

  /** Whether all of these pass without a change. */
  async #pass({ kind, names }: Stage): Promise<boolean> {
    for (const name of names) {
      if (this.#passes.has(name)) continue;
      const run = await this.#test({ kind, names: [name] }, null);
      this.#passes.set(name, run.passed);
    }
    return names.every((name) => this.#passes.get(name));
  }

  async #test({ kind, names }: Stage, mutant: Mutant | null): Promise<TestRun> {
    const changed = join(this.#root, 'node_modules', `.mutant-${process.pid}.ts`);
    const path = mutant && join(this.#root, mutant.file);
    if (path) writeFileSync(changed, mutated(readFileSync(path, 'utf8'), mutant));
    const script = [
      'cd "$MUTANTS_ROOT"',
      ...(path ? ['cp "$MUTANTS_CHANGED" "$MUTANTS_FILE"'] : []),
      `${kind === 'tests' ? VITEST : CONTRACT} ${names.join(' ')} >/dev/null 2>&1 </dev/null || true`,
      `cat ${REPORT} 2>/dev/null || true`,
    ].join('\n');
    const environment = { MUTANTS_ROOT: this.#root, MUTANTS_CHANGED: changed, MUTANTS_FILE: path ?? '' };
    try {
      const { code, stdout } = await this.#isolation.run(script, environment, this.#limitMs);
      if (code === null) return { passed: false, failure: null };
      // Without a report the program itself has failed, for which the first name stands.
      if (stdout === '') return { passed: false, failure: { where: names[0] ?? '', name: '(no report)' } };
      return kind === 'tests' ? this.#readTests(stdout) : readContract(stdout, names);
    } finally {
      rmSync(changed, { force: true });
    }
  }

  #readTests(stdout: string): TestRun {
    const { success, testResults } = JSON.parse(stdout) as TestReport;
    if (success) return { passed: true };
    // After the first failure those that had not begun count as failed, too, with no reason.
    const failures = testResults.flatMap(({ name: file, message, assertionResults }) => {
      const where = file.slice(this.#root.length + 1);
      const failed = assertionResults.filter(({ status }) => status === 'failed');
      if (failed.length === 0 && message !== '') return [{ where, name: message.split('\n')[0] ?? '' }];
      return failed.map(({ fullName }) => ({ where, name: fullName }));
    });
    return { passed: false, failure: failures[0] ?? null };
  }
}

/** The first and the last case come with all sections. */
function readContract(stdout: string, names: readonly string[]): TestRun {
  const results = JSON.parse(stdout) as readonly ReportedCase[];
  const failed = results.find(({ outcome }) => outcome === 'failed');
  if (!failed) return { passed: true };
  const where = names.includes(failed.section) ? failed.section : (names[0] ?? '');
  return { passed: false, failure: { where, name: failed.name } };
}
