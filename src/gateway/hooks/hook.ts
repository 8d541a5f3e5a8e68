import { expiryId, type Sandbox } from '../leases/sandbox.ts';

/** Tells the operator's side that a sandbox is to be paused or removed. Throws when that did not work. */
export interface Hook {
  /** `signal` ends the waiting, not the work. */
  run(request: HookRequest, signal: AbortSignal): Promise<void>;
}

/** What it is told. */
export type HookRequest = ReturnType<typeof hookRequest>;

export function hookRequest(sandbox: Sandbox) {
  const { id, onExpiry, address, port, metadata, deadline, failures, observed } = sandbox;
  return {
    /** The same for one expiry, however often it is told of: whoever is told twice can see it. */
    expiryID: expiryId(sandbox),
    sandboxID: id,
    outcome: onExpiry,
    attempt: failures + 1,
    endAt: new Date(deadline).toISOString(),
    ...{ address, port, metadata },
    freeze: observed?.freeze ?? null,
    collapse: observed?.collapse ?? null,
  };
}

/** Nobody has to be told. */
export const NO_HOOK: Hook = { run: async () => {} };
