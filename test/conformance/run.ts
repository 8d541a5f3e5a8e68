import { writeFileSync } from 'node:fs';
import type { Section } from './cases.ts';
import { runOf } from './guest.ts';
import { readSettings, type Settings, USAGE } from './options.ts';
import { type Totals, tableOf, totalsOf } from './report.ts';
import { runAll, type SectionResult } from './runner.ts';
import { SECTIONS } from './sections.ts';

const print = (text: string) => process.stdout.write(`${text}\n`);

// What still waits when a case has failed fails with its connections, and nobody waits for that any more.
process.on('unhandledRejection', () => {});

process.exitCode = await main(process.argv.slice(2));

/** `npm run conformance -- --url URL`; returns the exit code. */
async function main(argv: readonly string[]): Promise<number> {
  if (argv.includes('--help')) {
    print(USAGE);
    return 0;
  }
  let settings: Settings;
  let sections: readonly Section[];
  try {
    settings = readSettings(argv);
    sections = chosen(settings.only);
    // A report that cannot be written is told before the run.
    if (settings.report) writeFileSync(settings.report, '');
  } catch (error) {
    process.stderr.write(`conformance: ${(error as Error).message}\n\n${USAGE}\n`);
    return 2;
  }
  const totals = await run(settings, sections);
  return totals.failed === 0 ? 0 : 1;
}

/** Prints each section when it is complete, and writes the report so far, as a run may be ended. */
async function run(settings: Settings, sections: readonly Section[]): Promise<Totals> {
  const { url, report, options, limitMs } = settings;
  const started = new Date();
  const results: SectionResult[] = [];
  const write = (isComplete: boolean): Totals => {
    const totals = totalsOf(results);
    const seconds = (Date.now() - started.getTime()) / 1000;
    const told = { url, started, seconds, isComplete, options: [...options], totals, sections: results };
    if (report) writeFileSync(report, `${JSON.stringify(told, null, 2)}\n`);
    return totals;
  };
  await runAll(runOf(settings), sections, limitMs, (section) => {
    results.push(section);
    print(tableOf(section));
    write(false);
  });
  const totals = write(true);
  const seconds = ((Date.now() - started.getTime()) / 1000).toFixed(1);
  print(`\n${totals.passed} passed, ${totals.failed} failed, ${totals.notRun} not run, in ${seconds} s`);
  return totals;
}

/** The sections and cases that `words` name. Throws when there are none. */
function chosen(words: readonly string[] | null): readonly Section[] {
  if (words === null) return SECTIONS;
  const some = SECTIONS.map((section) => ({
    ...section,
    cases: section.cases.filter(({ name }) =>
      words.some((word) => word === section.number || name.includes(word)),
    ),
  })).filter(({ cases }) => cases.length > 0);
  if (some.length === 0) throw new Error(`no section and no case is called '${words.join("' or '")}'`);
  return some;
}
