/** Clients address the daemon of any sandbox by this port. */
export const DAEMON_PORT = 49983;
/**
 * The port of a daemon stays closed to other sandboxes for this time after its record is gone or names another endpoint, in ms,
 * because nobody tells the gateway when the daemon ends.
 */
export const CLOSED_MS = 86_400_000;

/** An id has only characters that need no quoting in a URL, a header or a file name. */
export const SANDBOX_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** The phases of a sandbox; `transitions.ts` lists the transitions. A removed sandbox has no record. */
export const PHASES = [
  ...(['running', 'expiring', 'committed', 'thawing', 'paused'] as const),
  ...(['resuming', 'removing', 'creating'] as const),
] as const;
export type Phase = (typeof PHASES)[number];

/** A sandbox that has expired is paused or removed when the hook has succeeded. */
export const OUTCOMES = ['pause', 'remove'] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** A pause keeps the memory with the disk, or the disk alone. */
export const PAUSE_KEEPS = ['memory', 'disk'] as const;
export type PauseKeeps = (typeof PAUSE_KEEPS)[number];

/** The daemon reported this about its freeze and its collapse. A member is null if the operation failed or was not called. */
export interface ObservedFreeze {
  readonly freeze: Readonly<Record<string, unknown>> | null;
  readonly collapse: Readonly<Record<string, unknown>> | null;
}

/** The lease of one gateway on a sandbox. It lapses at `until` (Unix ms by the registry's clock) unless it is renewed. */
export interface Claim {
  readonly owner: string;
  readonly until: number;
}

/** Published clients show these members of a sandbox. A member is absent if the platform did not name it. */
export interface Description {
  readonly templateID?: string;
  /** The name of the template. */
  readonly alias?: string;
  readonly cpuCount?: number;
  readonly memoryMB?: number;
  readonly diskSizeMB?: number;
}

/** The platform registers a sandbox with these members. */
export interface Registration extends Description {
  readonly id: string;
  /** A host name or an IP address. */
  readonly address: string;
  /** The address, if it is an IP address, otherwise null. */
  readonly ip: string | null;
  /** The machine that the sandbox runs on. If it is absent, the address identifies the machine. */
  readonly host?: string;
  /** The port of the daemon. */
  readonly port: number;
  readonly accessToken: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** The version of the daemon's interface, by which clients choose which operations they use. */
  readonly envdVersion: string;
  readonly onExpiry: Outcome;
  /** If this is false, the sandbox is paused without its memory when its time is up. */
  readonly keepMemory?: boolean;
  /** If this is false, requests do not resume the sandbox when it is paused. */
  readonly autoResume?: boolean;
  /** The sandbox expires after so many seconds without use. If this is absent, only its deadline counts. */
  readonly idleTimeout?: number;
  /**
   * Requests to the sandbox's ports show this token, or a pass that it has signed. If it is null, they need none. If it is absent,
   * the sandbox keeps what it had.
   */
  readonly trafficToken?: string | null;
  /** Servers at the sandbox's ports get this as `Host`, with `${PORT}` for the port. If it is absent, they get what the client sent. */
  readonly maskRequestHost?: string | null;
  /** This client may read and extend the sandbox. If it is null, only the platform may. */
  readonly owner: string | null;
}

/** Why a sandbox is paused or removed, if not because its time was up. */
export type EndCause = 'idle' | 'request' | 'drain' | 'forgotten' | 'failure' | 'orphan' | 'ended';

/** The record of a sandbox. Times are Unix ms. */
export interface Sandbox extends Registration {
  /** Each registration gets a new, random incarnation. */
  readonly incarnation: string;
  readonly startedAt: number;
  readonly deadline: number;
  /** The sandbox expires at this time unless it is used before. If this is absent, only its deadline counts. */
  readonly idleAt?: number;
  readonly phase: Phase;
  readonly claim: Claim | null;
  /** So many expiries, resumes and removals have begun in this incarnation. */
  readonly expiries: number;
  /** So many of them have failed in a row. */
  readonly failures: number;
  /** No new attempt begins before this time. */
  readonly retryAt: number;
  readonly observed: ObservedFreeze | null;
  /** If true, the daemon did not answer when the sandbox began to expire, so it is probably dead. */
  readonly isSilent?: boolean;
  /** While a client pauses the sandbox before its deadline, this is the deadline, which it gets back if the pause fails. */
  readonly pausedFrom?: number;
  /** While a client pauses the sandbox: whether its memory is kept. */
  readonly pauseMemory?: boolean;
  /** A paused sandbox had this time left when a client paused it, in ms; it gets the time back when it is resumed. */
  readonly leftMs?: number;
  /** Why the hook cannot pause the sandbox, if its last pause has failed so. */
  readonly refusal?: string;
  /** While the sandbox is being paused or removed: why, if not because its time was up. */
  readonly endCause?: EndCause;
  /** What the list hook says about a machine that has ended by itself. It is short and printable. */
  readonly endDetail?: string;
  /** If true, the sandbox must be removed when the running hook has ended. */
  readonly isDoomed?: boolean;
  /**
   * If this is absent, a hook has paused the machine of a paused sandbox with its memory. With `disk`, only the disk is kept, and a
   * new machine gets it.
   */
  readonly machine?: 'frozen' | 'disk';
  /** A paused sandbox is forgotten at this time, or never if this is absent. */
  readonly forgetAt?: number;
  /** If true, a create hook has made the machine. Otherwise the platform has registered the sandbox. */
  readonly isCreated?: boolean;
  /** If true, a hook has resumed the machine, but its guest has not been thawed yet. */
  readonly isResumed?: boolean;
}

const isText = (value: unknown) => typeof value === 'string';
const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0;
/** No time is later than JavaScript can show, in Unix ms. */
const isTime = (value: unknown) => typeof value === 'number' && Math.abs(value) <= 8.64e15;

/** Every record has these members. */
const REQUIRED: { readonly [name in keyof Sandbox]?: (value: unknown) => boolean } = {
  id: isText,
  incarnation: isText,
  address: isText,
  port: isCount,
  metadata: (value) => typeof value === 'object' && value !== null,
  phase: (value) => PHASES.some((phase) => phase === value),
  startedAt: isTime,
  deadline: isTime,
  expiries: isCount,
  failures: isCount,
  retryAt: isTime,
};

/** Parses a record. Returns null for a malformed one, so that it does not hide the others of a list. */
export function readRecord(text: string): Sandbox | null {
  try {
    const record = JSON.parse(text) as Sandbox;
    return Object.entries(REQUIRED).every(([name, has]) => has(record[name as keyof Sandbox]))
      ? record
      : null;
  } catch {
    return null;
  }
}

/** These settings say how a sandbox is paused. */
export interface Paused {
  /** If true, a hook pauses the machine. Otherwise the guest is only frozen. */
  readonly byHook: boolean;
  /** A paused sandbox is forgotten after this time, in ms; null means never. */
  readonly keptMs: number | null;
  /** If true, a hook removes machines. It is called when a sandbox is forgotten, or expires without a hook that removes it. */
  readonly canRemove?: boolean;
}

/** Returns what happens to a sandbox that expires. A client's request to pause it overrides its registration. */
export function outcomeOf({ onExpiry, pausedFrom }: Sandbox): Outcome {
  return pausedFrom === undefined ? onExpiry : 'pause';
}

/** Returns whether a pause that is under way, or the last one, keeps the memory. A client's request overrides the registration. */
export function keepsMemory({ phase, machine, pausedFrom, pauseMemory, keepMemory }: Sandbox): boolean {
  if (machine !== undefined || phase === 'paused' || phase === 'resuming') return machine !== 'disk';
  return (pausedFrom === undefined ? keepMemory : pauseMemory) ?? true;
}

/** Returns whether a sandbox that is not running can be resumed, now or when its pause is complete. */
export function isResumable(sandbox: Sandbox): boolean {
  const { phase, isDoomed, isResumed } = sandbox;
  if (phase === 'removing' || phase === 'creating' || isDoomed) return false;
  // A paused one is resumed even if it would be removed when its time is up.
  return phase === 'paused' || phase === 'resuming' || isResumed === true || outcomeOf(sandbox) === 'pause';
}

/**
 * Returns the id of one attempt to expire, resume, create or remove a sandbox. All gateways that work on the attempt use the
 * same id.
 */
export function expiryId({ incarnation, expiries }: Sandbox): string {
  return `${incarnation}-${expiries}`;
}

/** Returns the number of failures by which the places for expiries are given. A silent sandbox counts as one that has failed. */
export function countedFailures({ failures, isSilent }: Sandbox): number {
  return failures + (isSilent ? 1 : 0);
}

/** Returns the machine that a sandbox runs on, as far as it is known. */
export function hostOf({ host, address }: Pick<Sandbox, 'host' | 'address'>): string {
  return host ?? address;
}

/** Returns whether requests are forwarded to the sandbox. `now` is in Unix ms. */
export function isReachable({ phase, deadline }: Sandbox, now: number): boolean {
  return phase === 'running' && now < deadline;
}

/** Returns how a sandbox that is gone has ended, as its clients are told. */
export function endingOf({ endDetail }: Sandbox): string {
  return endDetail === undefined ? 'has expired' : `has ended: ${endDetail}`;
}

/** Returns whether the machine of a sandbox must exist now. During a hook it may exist or not. */
export function hasMachine({ phase }: Sandbox): boolean {
  return phase === 'running' || phase === 'expiring' || phase === 'thawing' || phase === 'paused';
}

/** Returns whether all connections of clients to the sandbox must be closed. */
export function isGone({ phase }: Sandbox): boolean {
  return phase === 'committed' || phase === 'paused' || phase === 'resuming' || phase === 'removing';
}

/** Returns whether a guest that was frozen is thawed next, because its deadline was moved. */
export function isBeingThawed({ phase, claim }: Sandbox): boolean {
  return claim !== null && (phase === 'expiring' || phase === 'thawing');
}

/** Returns when a gateway has to act on the sandbox, in Unix ms; infinity means never. */
export function dueAt({ phase, claim, deadline, idleAt = deadline, retryAt, forgetAt }: Sandbox): number {
  if (phase === 'paused') return forgetAt ?? Number.POSITIVE_INFINITY;
  if (phase === 'running') return claim?.until ?? Math.max(Math.min(deadline, idleAt), retryAt);
  return claim?.until ?? retryAt;
}
