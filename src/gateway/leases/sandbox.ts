/** The port by which clients address the daemon of any sandbox. */
export const DAEMON_PORT = 49983;

/** The phases of a sandbox; `transitions.ts` lists the transitions. A removed sandbox has no record. */
export const PHASES = [
  ...(['running', 'expiring', 'committed', 'thawing', 'paused'] as const),
  ...(['resuming', 'removing', 'creating'] as const),
] as const;
export type Phase = (typeof PHASES)[number];

/** What happens to a sandbox that has expired, once the hook has succeeded. */
export const OUTCOMES = ['pause', 'remove'] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** What the daemon reported of its freeze and its collapse; null: the operation failed or was not called. */
export interface ObservedFreeze {
  readonly freeze: Readonly<Record<string, unknown>> | null;
  readonly collapse: Readonly<Record<string, unknown>> | null;
}

/** The lease of one gateway on a sandbox. It lapses at `until` unless renewed (Unix ms, by the registry's clock). */
export interface Claim {
  readonly owner: string;
  readonly until: number;
}

/** What published clients show of a sandbox; absent: the platform did not say. */
export interface Description {
  readonly templateID?: string;
  /** The name of the template. */
  readonly alias?: string;
  readonly cpuCount?: number;
  readonly memoryMB?: number;
  readonly diskSizeMB?: number;
}

/** What the platform says of a sandbox when it registers it. */
export interface Registration extends Description {
  readonly id: string;
  /** A host name or an IP address. */
  readonly address: string;
  /** The address if it is an IP address, else null. */
  readonly ip: string | null;
  /** The machine that it runs on; absent: identified by the address. */
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
  /** It expires after so many seconds without use; absent: only its deadline counts. */
  readonly idleTimeout?: number;
  /** Requests to its ports show this token, or a pass that it has signed; null: they need none; absent: as before. */
  readonly trafficToken?: string | null;
  /** The client that may read and extend it; null: only the platform. */
  readonly owner: string | null;
}

/** The record of a sandbox. Times are Unix ms. */
export interface Sandbox extends Registration {
  /** A new one with each registration. */
  readonly incarnation: string;
  readonly startedAt: number;
  readonly deadline: number;
  /** When it expires unless it is used before; absent: only its deadline counts. */
  readonly idleAt?: number;
  readonly phase: Phase;
  readonly claim: Claim | null;
  /** The number of expiries, resumes and removals begun in this incarnation. */
  readonly expiries: number;
  /** How many of them have failed in a row. */
  readonly failures: number;
  /** No new attempt begins before this time. */
  readonly retryAt: number;
  readonly observed: ObservedFreeze | null;
  /** Set while it is paused before its time: the deadline that it had, and gets back if the pause fails. */
  readonly pausedFrom?: number;
  /** It is to be removed when the running hook has ended. */
  readonly isDoomed?: boolean;
  /** What was done to its machine when it was paused; absent: a hook paused it. */
  readonly machine?: 'frozen';
  /** When a paused sandbox is forgotten; absent: never. */
  readonly forgetAt?: number;
  /** A hook of this gateway has made its machine; absent: the platform has registered it. */
  readonly isCreated?: boolean;
  /** A hook has resumed its machine, but its guest has not been thawed yet. */
  readonly isResumed?: boolean;
}

/** Reads a record; null for one that is malformed, which must not hide the others. */
export function readRecord(text: string): Sandbox | null {
  try {
    const record = JSON.parse(text) as Partial<Sandbox> | null;
    const isRecord =
      typeof record?.id === 'string' && typeof record.metadata === 'object' && record.metadata !== null;
    return isRecord ? (record as Sandbox) : null;
  } catch {
    return null;
  }
}

/** How a sandbox is paused. */
export interface Paused {
  /** Whether a hook pauses the machine: without one, the guest is only frozen. */
  readonly byHook: boolean;
  /** How long it is remembered, in ms; null: for ever. */
  readonly keptMs: number | null;
}

/** What happens to a sandbox that expires. */
export function outcomeOf({ onExpiry, pausedFrom }: Sandbox): Outcome {
  return pausedFrom === undefined ? onExpiry : 'pause';
}

/** Whether a sandbox that is not running can be resumed, now or soon. */
export function isResumable(sandbox: Sandbox): boolean {
  const { phase, isDoomed, isResumed } = sandbox;
  if (phase === 'removing' || phase === 'creating' || isDoomed) return false;
  // A paused one is resumed even if it would be removed when its time is up.
  return phase === 'paused' || phase === 'resuming' || isResumed === true || outcomeOf(sandbox) === 'pause';
}

/** Identifies one attempt to expire, resume or remove a sandbox. All gateways that work on the attempt use the same id. */
export function expiryId({ incarnation, expiries }: Sandbox): string {
  return `${incarnation}-${expiries}`;
}

/** The machine that a sandbox runs on, as far as known. */
export function hostOf({ host, address }: Sandbox): string {
  return host ?? address;
}

/** Whether requests are forwarded to the sandbox. */
export function isReachable({ phase, deadline }: Sandbox, now: number): boolean {
  return phase === 'running' && now < deadline;
}

/** Whether all client connections to the sandbox must be closed. */
export function isGone({ phase }: Sandbox): boolean {
  return phase === 'committed' || phase === 'paused' || phase === 'resuming' || phase === 'removing';
}

/** When a gateway has to act on the sandbox, in Unix ms; infinity when never. */
export function dueAt({ phase, claim, deadline, idleAt = deadline, retryAt, forgetAt }: Sandbox): number {
  if (phase === 'paused') return forgetAt ?? Number.POSITIVE_INFINITY;
  if (phase === 'running') return claim?.until ?? Math.max(Math.min(deadline, idleAt), retryAt);
  return claim?.until ?? retryAt;
}
