import { type Requirement, reasonAgainst } from '../support/machine/machine.ts';
import { say } from './screen.ts';

/** Runs a tour, which returns the exit code; not on a machine that lacks a requirement. */
export async function start(
  tour: () => Promise<number>,
  { needs, farewell }: { readonly needs: readonly Requirement[]; readonly farewell: string },
): Promise<void> {
  const reasons = needs.map((requirement) => reasonAgainst(requirement)).filter((reason) => reason !== null);
  if (reasons.length > 0) {
    process.stderr.write(`demo: it needs ${needs.join(' and ')}: ${reasons[0]}\n`);
    process.exitCode = 1;
    return;
  }
  const started = performance.now();
  process.exitCode = await tour();
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  say(`\nThat was all, in ${seconds} s. ${farewell}`);
}
