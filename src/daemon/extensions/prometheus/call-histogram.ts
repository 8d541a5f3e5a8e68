import { BUCKETS, type CallTally, type OperationTally } from '../../../base/http/call-tally.ts';

const NAME = 'envd_call_duration_seconds';

/**
 * Returns the histogram of the durations of calls, as text of Prometheus and of OpenMetrics. The library renders only histograms
 * that it has counted itself.
 */
export function callHistogram({ operations }: CallTally): string {
  const lines = [...operations].flatMap(([operation, tally]) => linesOf(JSON.stringify(operation), tally));
  return [`# HELP ${NAME} Duration of calls, by operation.`, `# TYPE ${NAME} histogram`, ...lines, ''].join(
    '\n',
  );
}

/** Returns the lines of one operation, whose buckets are cumulative. `name` includes its quotes. */
function linesOf(name: string, { buckets, seconds }: OperationTally): string[] {
  let count = 0;
  const lines = buckets.map((number, index) => {
    count += number;
    return `${NAME}_bucket{le="${BUCKETS[index] ?? '+Inf'}",operation=${name}} ${count}`;
  });
  return [...lines, `${NAME}_sum{operation=${name}} ${seconds}`, `${NAME}_count{operation=${name}} ${count}`];
}
