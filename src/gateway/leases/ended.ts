import { expiryId, hasMachine, type Sandbox } from './sandbox.ts';
import { removeSandbox } from './transitions.ts';

/** Clients are told for this time why a machine has ended, before its remains and its record are removed, in ms. */
const TOLD_MS = 60_000;

/** Returns text that is another one after each step of a sandbox. */
export function momentOf(sandbox: Sandbox): string {
  return `${expiryId(sandbox)} ${sandbox.phase}`;
}

/**
 * Begins the removal of a sandbox whose machine has ended by itself. Returns the record unchanged if the sandbox may have another
 * machine by now, or if it was paused, which may end a machine.
 * @param seen `momentOf` the record before the end of the machine was known
 */
export function endSandbox(sandbox: Sandbox, seen: string, endDetail: string, now: number): Sandbox {
  if (!hasMachine(sandbox) || momentOf(sandbox) !== seen) return sandbox;
  return { ...removeSandbox(sandbox, now, 'ended'), retryAt: now + TOLD_MS, endDetail };
}
