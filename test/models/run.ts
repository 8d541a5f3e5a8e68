import { type Budget, ExpiryModel } from './expiry.ts';
import { Search } from './search.ts';

/*
 * Usage: npm run models [-- JSON…]. Searches the model of expiries with more going wrong than the tests have time for, and tells
 * the states; or with these budgets. Exit code 1: something is wrong; its trace is told.
 */

const NOTHING: Budget = { crashes: 0, failures: 0, lost: 0, jumps: 0, wishes: 0 };
const BUDGETS: readonly Partial<Budget>[] = [
  { crashes: 1, failures: 1, wishes: 1 },
  { crashes: 1, failures: 1, lost: 1, wishes: 1 },
  { failures: 1, wishes: 2 },
  { failures: 3 },
  { crashes: 2, failures: 1, lost: 1 },
  { wishes: 3 },
  { crashes: 1, failures: 1, jumps: 1 },
];

const given = process.argv.slice(2).map((text) => JSON.parse(text) as Partial<Budget>);
for (const budget of given.length > 0 ? given : BUDGETS) {
  for (const outcome of ['pause', 'remove'] as const) {
    const found = new Search(new ExpiryModel({ ...NOTHING, ...budget }, outcome)).run();
    const { states, moves, depth, milliseconds, violation } = found;
    const figures = `${states} states, ${moves} moves, depth ${depth}, ${Math.round(milliseconds / 100) / 10} s`;
    process.stdout.write(`${JSON.stringify(budget)}, to ${outcome}: ${figures}\n`);
    if (!violation) continue;
    process.stdout.write(`WRONG: ${violation.reason}:\n${violation.trace.join('\n')}\n`);
    process.exitCode = 1;
  }
}
