import type { Result, SectionResult } from './runner.ts';

const MARKS = { passed: 'ok', failed: 'FAIL', 'not run': '-' } as const;
const NAME_WIDTH = 96;

/** A section as lines of the table. */
export function tableOf({ number, title, results }: SectionResult): string {
  return [`\n${number} ${title}`, ...results.flatMap(rowOf)].join('\n');
}

function rowOf({ name, outcome, milliseconds, reason }: Result): string[] {
  const time = outcome === 'not run' ? '' : `${milliseconds} ms`.padStart(9);
  const row = `  ${MARKS[outcome].padEnd(4)}  ${name.padEnd(NAME_WIDTH)} ${time}`.trimEnd();
  const lines = reason?.split('\n').filter((line) => line.trim() !== '') ?? [];
  return [row, ...lines.map((line) => `          ${line}`)];
}

export interface Totals {
  readonly passed: number;
  readonly failed: number;
  readonly notRun: number;
}

export function totalsOf(sections: readonly SectionResult[]): Totals {
  const results = sections.flatMap((section) => section.results);
  const count = (outcome: Result['outcome']) => results.filter((result) => result.outcome === outcome).length;
  return { passed: count('passed'), failed: count('failed'), notRun: count('not run') };
}
