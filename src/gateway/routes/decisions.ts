import { DAEMON_PORT, type Sandbox } from '../leases/sandbox.ts';
import type { Upstream } from '../proxy/proxy.ts';
import type { RefusalAnswer } from './answers.ts';
import type { FoundPhase } from './request-times.ts';
import type { Target } from './target.ts';

/** Requests for sandboxes end in these ways, which are the labels of a metric. */
export const RESULTS = [
  ...(['carried', 'malformed', 'looped', 'closed', 'unauthorized', 'unknown', 'expired'] as const),
  ...(['busy', 'limited', 'failed', 'redirected'] as const),
];
export type Result = (typeof RESULTS)[number];

/** A request is forwarded to this place. */
export interface Route extends Upstream {
  /** The request target in origin form. */
  readonly path: string;
  /** The time until the sandbox expires, in ms. It is 0 if the sandbox was resumed for this request. */
  readonly leftMs: number;
  /** The owner of the sandbox, or the sandbox itself if it has no owner. */
  readonly party: string;
  /** The request may go on for this long, in ms. Infinity means as long as the sandbox runs. */
  readonly passMs: number;
}

export interface Refusal extends RefusalAnswer {
  readonly result: Exclude<Result, 'carried'>;
}

/** The decision about a request, with the phase in which it found the sandbox. */
export type Decision = (Route | Refusal) & { readonly phase: FoundPhase };

/** Returns whether a decision is a refusal. */
export function isRefusal(answer: object): answer is Refusal {
  return 'code' in answer;
}

/** Returns the port of the sandbox that a target names. */
export function targetPort(sandbox: Sandbox, { port }: Target): number {
  return port === DAEMON_PORT ? sandbox.port : port;
}

export function refusalOf(result: Refusal['result'], code: number, message: string): Refusal {
  return { result, code, message };
}
