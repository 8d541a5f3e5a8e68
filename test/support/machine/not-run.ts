import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';

declare module 'vitest' {
  interface TaskMeta {
    /** Why this machine cannot run a test that was skipped. */
    notRun?: string;
  }
}

/** Prints at the end of a run which tests this machine could not run, by reason, and how many files were left to `--long`. */
export class NotRunReporter implements Reporter {
  readonly #leftOut: readonly string[];

  /** @param leftOut the files that take long, if this run leaves them out */
  constructor(leftOut: readonly string[] = []) {
    this.#leftOut = leftOut;
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    this.#tellNotRun(modules);
    const { length } = this.#leftOut;
    if (length > 0)
      process.stdout.write(` NOT RUN here: ${length} files that take long; npm test -- --long runs them\n`);
  }

  #tellNotRun(modules: readonly TestModule[]): void {
    const byReason = new Map<string, string[]>();
    for (const module of modules) {
      for (const [reason, names] of notRun(module)) {
        const file = relative(process.cwd(), module.moduleId);
        byReason.set(reason, [...(byReason.get(reason) ?? []), ...describe(file, module, names)]);
      }
    }
    if (byReason.size === 0) return;
    const lines = [...byReason].flatMap(([reason, tests]) => [`   ${reason}:`, ...tests]);
    process.stdout.write(`\n NOT RUN on this machine\n${lines.join('\n')}\n\n`);
  }
}

function notRun(module: TestModule): Map<string, string[]> {
  const byReason = new Map<string, string[]>();
  for (const test of module.children.allTests('skipped')) {
    const result = test.result();
    const reason = (result.state === 'skipped' ? result.note : undefined) ?? test.meta().notRun;
    if (reason) byReason.set(reason, [...(byReason.get(reason) ?? []), test.fullName]);
  }
  return byReason;
}

/** The names of the tests; the name of the file when none of its tests ran. */
function describe(file: string, module: TestModule, names: readonly string[]): string[] {
  if (names.length === [...module.children.allTests()].length) return [`     ${file}: all ${names.length}`];
  return names.map((name) => `     ${file}: ${name}`);
}
