import { EventEmitter } from 'node:events';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import { EvictingSemaphore } from '../../../base/evicting-semaphore.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { debug } from '../../../base/program/debug.ts';
import { exhaustionOf } from '../../linux/system/errno.ts';
import type { Freezer } from '../pause/freezer.ts';
import type { FreezeAudit } from '../pause/sweep.ts';
import type { InitRequest } from './init-request.ts';
import { WAITING_CALLS } from './metadata-reader.ts';
import { SharedRuns } from './shared-runs.ts';

/** What an upgrade has handed over. */
export interface HandoverReport {
  readonly build: string;
  /** The number of processes that run; `exits` are those that have ended and that clients can still ask for. */
  readonly processes: number;
  readonly exits: number;
  readonly watchers: number;
  readonly volumes: number;
  readonly forwards: number;
}

/** The client that waits for a request to be applied. */
export interface WaitingCaller {
  /** Aborts when the client has gone. A getter may create it, because most calls wait for nothing and never ask for it. */
  readonly signal: AbortSignal;
}

export interface InitCall {
  readonly request: InitRequest;
  /** Whether a request with the same timestamp was begun before. */
  readonly isRepeated: boolean;
  readonly caller: WaitingCaller;
  /** Returns the time since the request arrived, in nanoseconds. */
  ageNs(): bigint;
}

/** A step that runs `unless stale` is left out when the request is not newer than the last one that was applied. */
type Condition = 'unless stale' | 'always';

export interface QuickStep {
  readonly name: string;
  readonly runs: Condition;
  run(call: InitCall): void;
}

/** An idempotent step that may take long or hang. Calls that want the same share one run. */
export interface LastingStep {
  readonly name: string;
  readonly runs: Condition;
  /** Returns what the request wants of this step, as JSON can represent it; null when it wants nothing. */
  wanted(request: InitRequest): object | string | null;
  run(request: InitRequest): Promise<void>;
}

export interface InitSteps {
  /** Throws unless the request is allowed. No step runs before it returns. */
  authorize(call: InitCall): Promise<void> | void;
  /** Its audit comes before the quick steps, because their thaw changes what it reports. */
  readonly freezer: Pick<Freezer, 'audit' | 'takeAudit' | 'keepAudit'>;
  /** The steps that never wait, in order of execution. */
  readonly quick: readonly QuickStep[];
  /** The steps that may take long. They run concurrently. */
  readonly lasting: readonly LastingStep[];
}

/** How an allowed request was applied. */
export interface InitReport {
  /**
   * The error of the first step that failed, with its name; null when none has. The other steps are done nevertheless. Or
   * `unavailable` when too many newer requests wait, and `aborted` when the client has gone.
   */
  readonly failure: unknown;
  /** What a freeze missed, for one caller; null for the others. */
  readonly freezeAudit: FreezeAudit | null;
  /** Whether the request has changed nothing because it was not newer than the last one that was applied. */
  readonly stale: boolean;
  /** What an upgrade has handed over, for one caller; null for the others. */
  readonly handover: HandoverReport | null;
}

interface SharedStep {
  readonly step: LastingStep;
  readonly runs: SharedRuns;
}

/**
 * Applies the platform's call after each boot and resume. The platform gives up a call after 50 ms, and repeats it until one
 * succeeds. So each call does the quick steps at once; steps that take longer go on without their caller, and later calls
 * share them (docs/decisions/015-init.md). Emits `progress` after steps that may have changed a setting.
 */
export class Init extends EventEmitter<{ progress: [] }> {
  readonly #steps: InitSteps;
  readonly #lasting: readonly SharedStep[];
  readonly #waiting = new EvictingSemaphore(WAITING_CALLS);
  #begunNs: bigint | null = null;
  #appliedNs: bigint | null = null;

  /** What an upgrade has handed over, for the next call that succeeds. */
  #handover: HandoverReport | null = null;

  constructor(steps: InitSteps) {
    super();
    this.#steps = steps;
    this.#lasting = steps.lasting.map((step) => ({ step, runs: new SharedRuns() }));
  }

  /**
   * Applies a request. One that fails counts as not applied: it may be sent again. Throws `unauthenticated` when the request is
   * not allowed, and `unavailable` when that cannot be found out.
   */
  async apply(request: InitRequest, caller: WaitingCaller): Promise<InitReport> {
    const arrived = monotonicMs();
    const ageNs = () => BigInt(Math.round((monotonicMs() - arrived) * 1e6));
    await this.#steps.authorize({ request, isRepeated: false, caller, ageNs });
    const { timestampNs } = request;
    const stale = this.#isStale(timestampNs);
    const isRepeated = timestampNs !== null && timestampNs === this.#begunNs;
    const auditFailure = this.#audit();
    const quickFailure = this.#runQuick({ request, isRepeated, caller, ageNs }, stale);
    if (!stale) this.#begunNs = timestampNs ?? this.#begunNs;
    this.emit('progress');
    const lasting = await this.#runLasting(request, stale, caller).catch((error: unknown) => error);
    const failure = auditFailure ?? quickFailure ?? lasting;
    const freezeAudit = this.#steps.freezer.takeAudit();
    if (failure) return { failure, freezeAudit, stale, handover: null };
    if (!stale) this.#appliedNs = latest(timestampNs, this.#appliedNs);
    this.emit('progress');
    const handover = this.#handover;
    this.#handover = null;
    return { failure, freezeAudit, stale, handover };
  }

  /** Call it when the answer with a report was lost, or is an error: the next caller gets what the report has. */
  lost({ freezeAudit, handover }: InitReport): void {
    if (handover) this.keepHandover(handover);
    if (freezeAudit) this.#steps.freezer.keepAudit(freezeAudit);
  }

  /** Gives what an upgrade has handed over to the next call that succeeds. */
  keepHandover(handover: HandoverReport): void {
    this.#handover = handover;
  }

  /** The timestamp of the newest request that was applied, in nanoseconds since the epoch; null when there was none. */
  get timestampNs(): bigint | null {
    return this.#appliedNs;
  }

  continueFrom(timestampNs: bigint | null): void {
    this.#begunNs = timestampNs;
    this.#appliedNs = timestampNs;
  }

  #audit(): EnvdError | null {
    try {
      this.#steps.freezer.audit();
      return null;
    } catch (error) {
      return failedStep('audit', error);
    }
  }

  #runQuick(call: InitCall, stale: boolean): EnvdError | null {
    let first: EnvdError | null = null;
    for (const { name, runs, run } of this.#steps.quick) {
      if (stale && runs !== 'always') continue;
      const started = monotonicMs();
      try {
        run(call);
        tellDone(name, started);
      } catch (error) {
        first ??= failedStep(name, error);
      }
    }
    return first;
  }

  /** Runs all lasting steps that are wanted, or waits for the runs of earlier calls; returns the first failure. */
  async #runLasting(request: InitRequest, stale: boolean, caller: WaitingCaller): Promise<EnvdError | null> {
    const wanted = this.#lasting.flatMap(({ step, runs }) => {
      const what = stale && step.runs !== 'always' ? null : step.wanted(request);
      return what === null ? [] : [{ step, runs, key: JSON.stringify(what) }];
    });
    if (wanted.length === 0) return null;
    using place = this.#waiting.take();
    const signal = AbortSignal.any([caller.signal, place.signal]);
    const failures = await Promise.all(
      wanted.map(({ step, runs, key }) => {
        const run = () => step.run(request).finally(() => this.emit('progress'));
        return failureOf(step.name, () => runs.join(key, run, signal));
      }),
    );
    signal.throwIfAborted();
    return failures.find((error) => error !== null) ?? null;
  }

  /** Returns whether a request is stale. One that is repeated before it was applied completely is not. */
  #isStale(timestampNs: bigint | null): boolean {
    if (timestampNs === null) return false;
    const isApplied = this.#appliedNs !== null && timestampNs <= this.#appliedNs;
    return isApplied || (this.#begunNs !== null && timestampNs < this.#begunNs);
  }
}

function latest(a: bigint | null, b: bigint | null): bigint | null {
  if (a === null || b === null) return a ?? b;
  return a > b ? a : b;
}

/** Runs a step; returns its error, or null when it succeeds. */
async function failureOf(name: string, run: () => Promise<void>): Promise<EnvdError | null> {
  const started = monotonicMs();
  try {
    await run();
    tellDone(name, started);
    return null;
  } catch (error) {
    return failedStep(name, error);
  }
}

function tellDone(step: string, started: number): void {
  debug('init', 'step done', () => ({ step, milliseconds: Math.round(monotonicMs() - started) }));
}

function failedStep(name: string, error: unknown): EnvdError {
  const kind = error instanceof EnvdError ? error.kind : (exhaustionOf(error) ?? 'internal');
  return new EnvdError(kind, `init step '${name}' failed: ${messageOf(error)}`, { cause: error });
}
