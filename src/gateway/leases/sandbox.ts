/** The phases of a sandbox; `transitions.ts` lists the ways between them. A sandbox that was removed has no record. */
export const PHASES = [
  ...(['running', 'expiring', 'committed', 'thawing', 'paused'] as const),
  ...(['resuming', 'removing'] as const),
] as const;
export type Phase = (typeof PHASES)[number];

/** What happens to a sandbox that has expired, once the hook has succeeded. */
export const OUTCOMES = ['pause', 'remove'] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** What the daemon reported on its freeze and its collapse; null for an operation that failed or was not called. */
export interface Observed {
  readonly freeze: Readonly<Record<string, unknown>> | null;
  readonly collapse: Readonly<Record<string, unknown>> | null;
}

/** The lease of one gateway on a sandbox. It lapses at `until` unless renewed (Unix ms, by the registry's clock). */
export interface Claim {
  readonly owner: string;
  readonly until: number;
}

/** What published clients show of a sandbox; absent: the platform has not told. */
export interface Description {
  readonly templateID?: string;
  /** The name of the template. */
  readonly alias?: string;
  readonly cpuCount?: number;
  readonly memoryMB?: number;
  readonly diskSizeMB?: number;
}

/** What the platform tells of a sandbox when it registers one. */
export interface Registration extends Description {
  readonly id: string;
  /** A host name or an IP address. */
  readonly address: string;
  /** The same if it is an IP address. */
  readonly ip: string | null;
  /** The machine that it is on; absent: its address tells. */
  readonly host?: string;
  /** The port of the daemon. */
  readonly port: number;
  readonly accessToken: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** The level of the daemon's interface, by which clients choose what to use. */
  readonly envdVersion: string;
  readonly onExpiry: Outcome;
  /** Whether a request resumes it when it is paused; absent: yes. */
  readonly autoResume?: boolean;
  /** The client whose key reads and extends it; null: nobody but the platform. */
  readonly owner: string | null;
}

/** The record of a sandbox. Times are Unix ms. */
export interface Sandbox extends Registration {
  /** A new one with each registration. */
  readonly incarnation: string;
  readonly startedAt: number;
  readonly deadline: number;
  readonly phase: Phase;
  readonly claim: Claim | null;
  /** The number of expiries, resumes and removals begun in this incarnation. */
  readonly expiries: number;
  /** The number of them that have failed in a row. */
  readonly failures: number;
  /** No new attempt begins before. */
  readonly retryAt: number;
  readonly observed: Observed | null;
  /** It is to be paused before its time: the deadline that it had, and gets back if that fails. */
  readonly pausedFrom?: number;
  /** It is to be removed when the hook that runs has ended. */
  readonly isDoomed?: boolean;
  /** What was done to its machine when it was paused; absent: a hook has paused it. */
  readonly machine?: 'frozen';
  /** When a paused one is forgotten; absent: never. */
  readonly forgetAt?: number;
  /** A hook has resumed its machine, and its guest has not been thawed since. */
  readonly isResumed?: boolean;
}

/** How a sandbox is paused. */
export interface Paused {
  /** Whether a hook has paused the machine: without a hook its guest is frozen only. */
  readonly byHook: boolean;
  /** How long it is remembered, in ms; null: for ever. */
  readonly keptMs: number | null;
}

/** What becomes of a sandbox that expires. */
export function outcomeOf({ onExpiry, pausedFrom }: Sandbox): Outcome {
  return pausedFrom === undefined ? onExpiry : 'pause';
}

/** Whether a sandbox that does not run is, or is about to be, one that can be resumed. */
export function isResumable(sandbox: Sandbox): boolean {
  return outcomeOf(sandbox) === 'pause' && sandbox.phase !== 'removing' && !sandbox.isDoomed;
}

/** Identifies one attempt to expire, resume or remove a sandbox. All gateways that work on the attempt use the same id. */
export function expiryId({ incarnation, expiries }: Sandbox): string {
  return `${incarnation}-${expiries}`;
}

/** The machine that a sandbox is on, as far as that is known. */
export function hostOf({ host, address }: Sandbox): string {
  return host ?? address;
}

/** Whether requests are forwarded to the sandbox. */
export function isReachable({ phase, deadline }: Sandbox, now: number): boolean {
  return phase === 'running' && now < deadline;
}

/** Whether all connections of clients to the sandbox must be closed. */
export function isGone({ phase }: Sandbox): boolean {
  return phase === 'committed' || phase === 'paused' || phase === 'resuming' || phase === 'removing';
}

/** When a gateway has to act on the sandbox, in Unix ms; infinity when never. */
export function dueAt({ phase, claim, deadline, retryAt, forgetAt }: Sandbox): number {
  if (phase === 'paused') return forgetAt ?? Number.POSITIVE_INFINITY;
  if (phase === 'running') return Math.max(deadline, retryAt);
  return claim?.until ?? retryAt;
}
