import { Histogram } from 'prom-client';
import { BUCKETS } from '../../base/http/call-tally.ts';
import { isReachable, type Phase, type Sandbox } from '../leases/sandbox.ts';

/** The phase that a request finds a sandbox in. */
export type FoundPhase = Phase | 'unknown';

/** The phase of a record; past its deadline, a running sandbox is about to expire. */
export function foundPhase(sandbox: Sandbox, now: number): FoundPhase {
  return sandbox.phase === 'running' && !isReachable(sandbox, now) ? 'expiring' : sandbox.phase;
}

/** How long requests for sandboxes take, by phase. By id, a gateway would have as many series as it ever had sandboxes. */
export class RequestTimes {
  readonly routes = histogram('envd_gateway_route_seconds', 'Time until it is known where a request goes', [
    ...BUCKETS,
    30,
  ]);
  readonly exchanges = histogram('envd_gateway_exchange_seconds', 'Time until a request is over', [
    ...BUCKETS,
    ...[60, 600, 3600],
  ]);
}

function histogram(name: string, help: string, buckets: number[]): Histogram<'phase'> {
  // Each rendering has a registry of its own, so the histogram is registered in none.
  const labelNames = ['phase'] as const;
  return new Histogram({ name, help: `${help}, by phase.`, labelNames, buckets, registers: [] });
}
