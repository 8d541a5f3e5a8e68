import { countedFailures, hostOf, type Sandbox } from '../leases/sandbox.ts';

/** A sandbox that some gateway has to act on. */
export interface DueSandbox {
  readonly id: string;
  readonly host: string;
  readonly owner: string | null;
  readonly failures: number;
}

/** The sandboxes that some gateway has to act on. */
export interface Due {
  readonly sandboxes: readonly DueSandbox[];
  /**
   * The time until the next one is due, in ms. It is 0 or less if more are due already, and infinity if there are no others.
   */
  readonly nextInMs: number;
}

/** Returns what is read of a sandbox that is due. */
export function dueSandboxOf(sandbox: Sandbox): DueSandbox {
  return {
    id: sandbox.id,
    host: hostOf(sandbox),
    owner: sandbox.owner ?? null,
    failures: countedFailures(sandbox),
  };
}
