import { EnvdError, messageOf } from '../../../base/errors.ts';
import { SerialQueue } from '../../../base/exclusion.ts';
import type { FreezeAudit } from '../freeze/sweep.ts';
import type { InitRequest } from './init-request.ts';

/** Results of steps, also available when a later step fails. */
export interface InitReport {
  /** Null if the request was not authorised. */
  freezeAudit: FreezeAudit | null;
}

/** Arguments of a step. */
export interface InitCall {
  readonly request: InitRequest;
  readonly report: InitReport;
  /** Time since the request arrived, in nanoseconds; it may have waited for another one. */
  ageNs(): bigint;
}

/** One idempotent step of /init. */
export interface InitStep {
  readonly name: string;
  /**
   * `first`: authorises the request; if it throws, no other step runs.
   * `unless stale`: skipped for a request not newer than the last one applied, and after a failed step.
   * `always`: runs for every authorised request, also after a failed step.
   */
  readonly runs: 'first' | 'unless stale' | 'always';
  run(call: InitCall): Promise<void> | void;
}

export interface InitResult {
  /** Whether the request was not newer than the last one applied and has therefore changed nothing. */
  readonly stale: boolean;
}

/** The platform's call after each boot and resume: ordered, named steps, one call at a time. */
export class Init {
  readonly #steps: readonly InitStep[];
  #lastTimestampNs: bigint | null = null;
  readonly #queue = new SerialQueue('init');

  /** Called after each step that may have changed a setting. */
  onProgress: () => void = () => {};

  constructor(steps: readonly InitStep[]) {
    this.#steps = steps;
  }

  /**
   * Applies requests in order of arrival. Throws the error of the first failed step, with the step's name; a failed
   * request counts as not applied and may be sent again. Throws `resource_exhausted` if too many requests wait.
   * @param report filled in by the steps
   */
  apply(request: InitRequest, report: InitReport = { freezeAudit: null }): Promise<InitResult> {
    const arrived = process.hrtime.bigint();
    const call: InitCall = { request, report, ageNs: () => process.hrtime.bigint() - arrived };
    return this.#queue.run(() => this.#run(call));
  }

  /** The timestamp of the last request that was applied, in nanoseconds; null: none. */
  get timestampNs(): bigint | null {
    return this.#lastTimestampNs;
  }

  /** Continues for an earlier program. */
  continueFrom(timestampNs: bigint | null): void {
    this.#lastTimestampNs = timestampNs;
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
      this.onProgress();
    }
    if (failure) throw failure;
    if (!stale) this.#lastTimestampNs = call.request.timestampNs ?? this.#lastTimestampNs;
    this.onProgress();
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
