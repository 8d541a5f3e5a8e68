import { type Requirement, reasonAgainst } from '../support/machine.ts';
import { say } from './screen.ts';

/** A whole tour, which returns the exit code; where the machine has not what it needs, it is not begun. */
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
