import { EnvdError, messageOf } from '../../base/errors.ts';
import type { InitRequest } from './init-request.ts';

/** What a step may need to know beside the request. */
export interface InitCall {
  readonly request: InitRequest;
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
  #last: Promise<unknown> = Promise.resolve();

  constructor(steps: readonly InitStep[]) {
    this.#steps = steps;
  }

  /**
   * Applies a request after those that came before it. Throws the error of the first step that failed, named.
   * A request that failed counts as not applied: it may be sent again.
   */
  apply(request: InitRequest): Promise<InitResult> {
    const arrived = process.hrtime.bigint();
    const call: InitCall = { request, ageNs: () => process.hrtime.bigint() - arrived };
    const result = this.#last.then(() => this.#run(call));
    this.#last = result.catch(() => {});
    return result;
  }

  async #run(call: InitCall): Promise<InitResult> {
    for (const step of this.#of('first')) await step.run(call);
    const stale = this.#isStale(call.request);
    const failure = await firstFailure(stale ? [] : this.#of('unless stale'), call);
    const lateFailure = await firstFailure(this.#of('always'), call);
    if (failure ?? lateFailure) throw failure ?? lateFailure;
    if (!stale) this.#lastTimestampNs = call.request.timestampNs ?? this.#lastTimestampNs;
    return { stale };
  }

  #of(runs: InitStep['runs']): InitStep[] {
    return this.#steps.filter((step) => step.runs === runs);
  }

  #isStale({ timestampNs }: InitRequest): boolean {
    return timestampNs !== null && this.#lastTimestampNs !== null && timestampNs <= this.#lastTimestampNs;
  }
}

/** Runs the steps in order, up to the first that fails; null when none does. */
async function firstFailure(steps: readonly InitStep[], call: InitCall): Promise<EnvdError | null> {
  for (const step of steps) {
    try {
      await step.run(call);
    } catch (error) {
      const kind = error instanceof EnvdError ? error.kind : 'internal';
      return new EnvdError(kind, `init step '${step.name}' failed: ${messageOf(error)}`, { cause: error });
    }
  }
  return null;
}
