import { TestRunner } from 'vitest';
import { type Requirement, reasonAgainst } from './machine.ts';

/**
 * Says what the test that is running needs of the machine: where that is missing, it ends here and is told as not
 * run, with the reason (`not-run.ts`). For tests, `beforeEach`, and fixtures that both may use; elsewhere it throws.
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
