import { EventEmitter } from 'node:events';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { debug } from '../../../base/program/debug.ts';
import { exhaustionOf } from '../../linux/system/errno.ts';
import type { FreezeAudit } from '../pause/sweep.ts';
import type { InitRequest } from './init-request.ts';
import { SharedRuns } from './shared-runs.ts';
import { WaitingCalls } from './waiting-calls.ts';

/** What went over in an upgrade. */
export interface HandoverReport {
  /** The version of the build that was replaced. */
  readonly build: string;
  /** Processes that run, and those that have ended and can still be asked for. */
  readonly processes: number;
  readonly exits: number;
  readonly watchers: number;
  readonly volumes: number;
  readonly forwards: number;
}

/** Results of steps, also available when a later step fails. */
export interface InitReport {
  /** Missing if the request was not authorised, or there was no upgrade since the last one that succeeded. */
  handover?: HandoverReport | null;
  /** Null if the request was not authorised, or nothing is to be reported. */
  freezeAudit: FreezeAudit | null;
  /** To be called when the client has got a successful response. */
  delivered?: () => void;
}

/** Whoever waits for a request to be applied. */
export interface WaitingCaller {
  /** Aborts when the client has gone. Made when it is first asked for: most calls wait for nothing. */
  readonly signal: AbortSignal;
}

/** Arguments of a step. */
export interface InitCall {
  readonly request: InitRequest;
  readonly report: InitReport;
  /** Whether a request with the same time was begun before. */
  readonly isRepeated: boolean;
  readonly caller: WaitingCaller;
  /** Time since the request arrived, in nanoseconds. */
  ageNs(): bigint;
}

/** `unless stale`: not for a request that is not newer than the last one applied. */
type Condition = 'unless stale' | 'always';

/** A step that never waits. */
export interface QuickStep {
  readonly name: string;
  readonly runs: Condition;
  run(call: InitCall): void;
}

/** An idempotent step that may take long or hang. Calls that want the same share a run. */
export interface LastingStep {
  readonly name: string;
  readonly runs: Condition;
  /** What the request wants, as JSON can represent it; null: nothing. */
  wanted(request: InitRequest): object | string | null;
  run(request: InitRequest): Promise<void>;
}

export interface InitSteps {
  /** Throws unless the request is allowed; then nothing else runs. */
  authorize(call: InitCall): Promise<void> | void;
  /** In order of execution. */
  readonly quick: readonly QuickStep[];
  /** Independent of each other. */
  readonly lasting: readonly LastingStep[];
}

export interface InitResult {
  /** Whether the request was not newer than the last one applied and has therefore changed nothing. */
  readonly stale: boolean;
}

interface SharedStep {
  readonly step: LastingStep;
  readonly runs: SharedRuns;
}

/** A signal that never aborts: internal runs have no caller. */
const NEVER = new AbortController().signal;

/**
 * The platform's call after each boot and resume. The platform gives up a call after 50 ms and repeats it until one
 * succeeds. So each call does the quick steps at once; what takes longer goes on without its caller, and later calls
 * share it (docs/decisions/015-init.md). Emits `progress` after steps that may have changed a setting.
 */
export class Init extends EventEmitter<{ progress: [] }> {
  readonly #steps: InitSteps;
  readonly #lasting: readonly SharedStep[];
  readonly #waiting = new WaitingCalls();
  /** The times of the newest request that was begun, and of the newest that was applied completely. */
  #begunNs: bigint | null = null;
  #appliedNs: bigint | null = null;

  /** What an upgrade has brought, for the next caller. */
  handover: HandoverReport | null = null;

  constructor(steps: InitSteps) {
    super();
    this.#steps = steps;
    this.#lasting = steps.lasting.map((step) => ({ step, runs: new SharedRuns() }));
  }

  /**
   * Applies a request. Throws the error of the first failed step, with the step's name; the other steps are done
   * nevertheless, the request counts as not applied and may be sent again. Throws `unavailable` if too many newer requests
   * wait, `aborted` when the client has gone.
   * @param report filled in by the steps
   */
  async apply(
    request: InitRequest,
    report: InitReport = { freezeAudit: null },
    caller: WaitingCaller = { signal: NEVER },
  ): Promise<InitResult> {
    const arrived = monotonicMs();
    const ageNs = () => BigInt(Math.round((monotonicMs() - arrived) * 1e6));
    await this.#steps.authorize({ request, report, isRepeated: false, caller, ageNs });
    report.handover = this.handover;
    const { timestampNs } = request;
    const stale = this.#isStale(timestampNs);
    const isRepeated = timestampNs !== null && timestampNs === this.#begunNs;
    const quick = this.#runQuick({ request, report, isRepeated, caller, ageNs }, stale);
    if (!stale) this.#begunNs = timestampNs ?? this.#begunNs;
    this.emit('progress');
    const lasting = await this.#runLasting(request, stale, caller);
    const failure = quick ?? lasting;
    if (failure) throw failure;
    if (!stale) this.#appliedNs = latest(timestampNs, this.#appliedNs);
    this.emit('progress');
    return { stale };
  }

  /** The timestamp of the newest request that was applied, in nanoseconds; null: none. */
  get timestampNs(): bigint | null {
    return this.#appliedNs;
  }

  /** Continues for an earlier program. */
  continueFrom(timestampNs: bigint | null): void {
    this.#begunNs = timestampNs;
    this.#appliedNs = timestampNs;
  }

  /** Runs all of them; returns the first failure. */
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

  /** Runs all that are wanted, or waits for those of earlier calls; returns the first failure. */
  async #runLasting(request: InitRequest, stale: boolean, caller: WaitingCaller): Promise<EnvdError | null> {
    const wanted = this.#lasting.flatMap(({ step, runs }) => {
      const what = stale && step.runs !== 'always' ? null : step.wanted(request);
      return what === null ? [] : [{ step, runs, key: JSON.stringify(what) }];
    });
    if (wanted.length === 0) return null;
    using place = this.#waiting.enter(caller.signal);
    const failures = await Promise.all(
      wanted.map(({ step, runs, key }) => {
        const run = () => step.run(request).finally(() => this.emit('progress'));
        return failureOf(step.name, () => runs.join(key, run, place.signal));
      }),
    );
    place.signal.throwIfAborted();
    return failures.find((error) => error !== null) ?? null;
  }

  /** A repeated request whose quick steps alone were done is not stale. */
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

/** Null when the step succeeds. */
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
