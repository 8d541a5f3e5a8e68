import { EnvdError, messageOf } from '../../../base/errors.ts';
import { SerialQueue } from '../../../base/exclusion.ts';
import type { FreezeAudit } from '../freeze/sweep.ts';
import type { InitRequest } from './init-request.ts';

/** What steps have to tell, also when a later one has failed. */
export interface InitReport {
  /** Null when the caller was not allowed to do this at all. */
  freezeAudit: FreezeAudit | null;
}

/** What a step may need to know beside the request. */
export interface InitCall {
  readonly request: InitRequest;
  readonly report: InitReport;
  /** How long ago the request came in, in nanoseconds: it may have waited for another one. */
  ageNs(): bigint;
}

/** One thing that /init does; doing it twice is the same as doing it once. */
export interface InitStep {
  readonly name: string;
  /**
   * `first`: decides whether the caller may do this at all; when it throws, nothing else is run.
   * `unless stale`: not for a request that is no newer than the last one applied, nor after a failure.
   * `always`: for every authorised request, even when a step before it has failed.
   */
  readonly runs: 'first' | 'unless stale' | 'always';
  run(call: InitCall): Promise<void> | void;
}

export interface InitResult {
  /** Whether the request was no newer than the last one applied and so has changed nothing. */
  readonly stale: boolean;
}

/** The platform's call after each boot and resume: ordered, named steps, one call at a time. */
export class Init {
  readonly #steps: readonly InitStep[];
  #lastTimestampNs: bigint | null = null;
  readonly #queue = new SerialQueue('init');

  constructor(steps: readonly InitStep[]) {
    this.#steps = steps;
  }

  /**
   * Applies a request after those that came before it. Throws the error of the first step that failed, named.
   * A request that failed counts as not applied: it may be sent again. Throws `resource_exhausted` while too many wait.
   * @param report filled in meanwhile
   */
  apply(request: InitRequest, report: InitReport = { freezeAudit: null }): Promise<InitResult> {
    const arrived = process.hrtime.bigint();
    const call: InitCall = { request, report, ageNs: () => process.hrtime.bigint() - arrived };
    return this.#queue.run(() => this.#run(call));
  }

  async #run(call: InitCall): Promise<InitResult> {
    const stale = this.#isStale(call.request);
    let failure: EnvdError | null = null;
    for (const step of this.#steps) {
      if (step.runs === 'unless stale' && (stale || failure)) continue;
      if (step.runs === 'first') {
        await step.run(call);
        continue;
      }
      const failed = await failureOf(step, call);
      failure ??= failed;
    }
    if (failure) throw failure;
    if (!stale) this.#lastTimestampNs = call.request.timestampNs ?? this.#lastTimestampNs;
    return { stale };
  }

  #isStale({ timestampNs }: InitRequest): boolean {
    return timestampNs !== null && this.#lastTimestampNs !== null && timestampNs <= this.#lastTimestampNs;
  }
}

/** Null when the step succeeds. */
async function failureOf(step: InitStep, call: InitCall): Promise<EnvdError | null> {
  try {
    await step.run(call);
    return null;
  } catch (error) {
    const kind = error instanceof EnvdError ? error.kind : 'internal';
    return new EnvdError(kind, `init step '${step.name}' failed: ${messageOf(error)}`, { cause: error });
  }
}
