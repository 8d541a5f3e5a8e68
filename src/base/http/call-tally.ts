/** Upper bounds of the histogram's buckets, in seconds. */
export const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;

/** The calls of one operation. */
export interface OperationTally {
  /** The number of calls by code. */
  readonly codes: Map<string, number>;
  /** The number of calls in each bucket. The last bucket counts calls that exceed all bounds. */
  readonly buckets: number[];
  /** The sum of the durations. */
  seconds: number;
}

/** Counts calls and their durations, by operation. */
export class CallTally {
  readonly operations = new Map<string, OperationTally>();

  add(operation: string, code: string, seconds: number): void {
    const tally = this.operations.get(operation) ?? this.#new(operation);
    tally.codes.set(code, (tally.codes.get(code) ?? 0) + 1);
    tally.seconds += seconds;
    let bucket = 0;
    while (seconds > (BUCKETS[bucket] ?? Number.POSITIVE_INFINITY)) bucket++;
    tally.buckets[bucket] = (tally.buckets[bucket] ?? 0) + 1;
  }

  #new(operation: string): OperationTally {
    const tally = {
      codes: new Map<string, number>(),
      buckets: Array<number>(BUCKETS.length + 1).fill(0),
      seconds: 0,
    };
    this.operations.set(operation, tally);
    return tally;
  }
}
