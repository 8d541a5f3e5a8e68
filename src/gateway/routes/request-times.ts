import { Histogram } from 'prom-client';
import { BUCKETS } from '../../base/http/call-tally.ts';
import { isReachable, type Phase, type Sandbox } from '../leases/sandbox.ts';

/** The phase in which a request finds a sandbox. */
export type FoundPhase = Phase | 'unknown';

/** Returns the phase of a record. A running sandbox whose deadline has passed counts as `expiring`. */
export function foundPhase(sandbox: Sandbox, now: number): FoundPhase {
  return sandbox.phase === 'running' && !isReachable(sandbox, now) ? 'expiring' : sandbox.phase;
}

/**
 * Measures requests for sandboxes by phase, because labels with ids would create a series for every sandbox that ever
 * existed.
 */
export class RequestTimes {
  readonly routes = histogram(
    'envd_gateway_route_seconds',
    'Time until the gateway knows where a request goes',
    [...BUCKETS, 30],
  );
  readonly exchanges = histogram('envd_gateway_exchange_seconds', 'Time until a request is over', [
    ...BUCKETS,
    ...[60, 600, 3600],
  ]);
}

function histogram(name: string, help: string, buckets: number[]): Histogram<'phase'> {
  // The histogram is registered nowhere, because each rendering of the metrics has a registry of its own.
  const labelNames = ['phase'] as const;
  return new Histogram({ name, help: `${help}, by phase.`, labelNames, buckets, registers: [] });
}
