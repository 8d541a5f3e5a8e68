import { DAEMON_PORT, type Sandbox } from '../leases/sandbox.ts';
import type { Upstream } from '../proxy/proxy.ts';
import type { RefusalAnswer } from './answers.ts';
import type { FoundPhase } from './request-times.ts';
import type { Target } from './target.ts';

/** How requests for sandboxes ended: the labels of a metric. */
export const RESULTS = [
  ...(['carried', 'malformed', 'looped', 'closed', 'unauthorized', 'unknown', 'expired'] as const),
  ...(['busy', 'limited', 'failed', 'redirected'] as const),
];
export type Result = (typeof RESULTS)[number];

/** Where a request goes. */
export interface Route extends Upstream {
  /** In origin form. */
  readonly path: string;
  /** The time until the sandbox expires, in ms; 0 if it was resumed for this request. */
  readonly leftMs: number;
  /** Whose sandbox it is; one without an owner is its own. */
  readonly party: string;
  /** Whether a rate limit counted the request, so that each one must be asked about. */
  readonly isCounted: boolean;
  /** Whether other requests for the same port may be refused, so that each one must be asked about. */
  readonly isPrivate: boolean;
  /** For how long the request may go on, in ms; infinity: as long as the sandbox runs. */
  readonly passMs: number;
}

export interface Refusal extends RefusalAnswer {
  readonly result: Exclude<Result, 'carried'>;
}

/** The decision on a request. */
export type Decision = (Route | Refusal) & { readonly phase: FoundPhase };

export function isRefusal(answer: object): answer is Refusal {
  return 'code' in answer;
}

/** The port of the sandbox that a target names. */
export function targetPort(sandbox: Sandbox, { port }: Target): number {
  return port === DAEMON_PORT ? sandbox.port : port;
}

export function refusalOf(result: Refusal['result'], code: number, message: string): Refusal {
  return { result, code, message };
}
