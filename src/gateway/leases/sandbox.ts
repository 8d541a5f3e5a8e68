/**
 * Where a sandbox is in its life, a closed set; the moves between them are in `moves.ts`. One that is removed has no
 * record.
 */
export const PHASES = ['running', 'expiring', 'committed', 'thawing', 'paused'] as const;
export type Phase = (typeof PHASES)[number];

/** What becomes of a sandbox whose time is up and whose hook has succeeded. */
export const OUTCOMES = ['pause', 'remove'] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** What the guest has told of its freeze and its collapse; null for what it was not asked or did not answer. */
export interface Observed {
  readonly freeze: Readonly<Record<string, unknown>> | null;
  readonly collapse: Readonly<Record<string, unknown>> | null;
}

/** Who works on a sandbox, and until when that counts unless it is renewed (Unix ms of the registry's clock). */
export interface Claim {
  readonly owner: string;
  readonly until: number;
}

/** What is told of a sandbox when it is registered. */
export interface Registration {
  readonly id: string;
  /** Where it is reached: a name or an address. */
  readonly address: string;
  /** Where its daemon listens. */
  readonly port: number;
  readonly accessToken: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** What clients may expect of the daemon. */
  readonly envdVersion: string;
  readonly onExpiry: Outcome;
}

/** The whole record of a sandbox. Times are Unix ms. */
export interface Sandbox extends Registration {
  /** Anew with each registration. */
  readonly incarnation: string;
  readonly startedAt: number;
  readonly deadline: number;
  readonly phase: Phase;
  readonly claim: Claim | null;
  /** How many expiries of this incarnation have begun. */
  readonly expiries: number;
  /** How many of them have failed in a row. */
  readonly failures: number;
  /** Nothing is tried again before. */
  readonly retryAt: number;
  readonly observed: Observed | null;
}

/** Names one expiry: the same for every gateway that works on it, another one for the next attempt. */
export function expiryId({ incarnation, expiries }: Sandbox): string {
  return `${incarnation}-${expiries}`;
}

/** Whether requests go to it. */
export function isReachable({ phase, deadline }: Sandbox, now: number): boolean {
  return phase === 'running' && now < deadline;
}

/** Whether nothing of a client may be open to it any more. */
export function isGone({ phase }: Sandbox): boolean {
  return phase === 'committed' || phase === 'paused';
}

/** Since when, or from when on, a gateway has something to do for it; infinity when never. */
export function attentionAt({ phase, claim, deadline, retryAt }: Sandbox): number {
  if (phase === 'paused') return Number.POSITIVE_INFINITY;
  if (phase === 'running') return Math.max(deadline, retryAt);
  return claim?.until ?? retryAt;
}
