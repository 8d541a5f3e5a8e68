import { TestRunner } from 'vitest';
import { type Requirement, reasonAgainst } from './machine.ts';

/**
 * Declares what the current test needs of the machine: where that is missing, the test ends here and is listed as not
 * run, with the reason (`not-run.ts`). For tests, `beforeEach`, and fixtures used by both; elsewhere it throws.
 */
export function needs(...requirements: readonly Requirement[]): void {
  for (const requirement of requirements) {
    const reason = reasonAgainst(requirement);
    if (reason === null) continue;
    const test = TestRunner.getCurrentTest();
    if (!test) throw new Error(`'${requirement}' is needed here: ${reason}`);
    test.context.skip(reason);
  }
}
