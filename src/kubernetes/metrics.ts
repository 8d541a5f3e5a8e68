import { Counter, Gauge, Registry as Page } from 'prom-client';
import type { Cluster } from './cluster/cluster.ts';
import type { HookTally } from './hooks/server.ts';
import type { Endings } from './machines/endings.ts';
import { runningIn } from './machines/listing.ts';
import type { Pools } from './machines/pools.ts';

/** The parts that the metrics are read from. */
export interface KubernetesTelemetry {
  readonly cluster: Cluster;
  readonly pools: Pools;
  readonly endings: Endings;
  readonly hooks: HookTally;
}

type Values = Readonly<Record<string, number>>;

/** Returns all metrics in the text format of Prometheus, with its content type. */
export async function renderKubernetesMetrics(
  telemetry: KubernetesTelemetry,
): Promise<{ readonly contentType: string; readonly text: string }> {
  const { cluster, pools, endings, hooks } = telemetry;
  const page = new Page();
  const isCurrent = cluster.pods.isCurrent && cluster.templates.isCurrent;
  gauge(page, 'current', 'Whether the watches of the API server work.', null, { all: isCurrent ? 1 : 0 });
  const sandboxes = cluster.pods.isCurrent ? runningIn(cluster).length : 0;
  gauge(page, 'sandboxes', 'Sandboxes that have a Pod.', null, { all: sandboxes });
  gauge(page, 'warm_pods', 'Pods of pools.', 'state', { ...pools.size });
  counter(page, 'pool_events_total', 'What happened to Pods of pools.', 'event', { ...pools.tally });
  counter(page, 'ended_pods_total', 'Pods of sandboxes that ended and were not removed.', null, {
    all: endings.count,
  });
  counter(page, 'api_requests_total', 'Requests to the API server.', 'verb', cluster.requests);
  const results = new Counter({
    name: 'envd_kubernetes_hooks_total',
    help: 'Hooks that were answered.',
    labelNames: ['event', 'result'],
    registers: [page],
  });
  for (const result of ['ok', 'failed'] as const)
    for (const [event, count] of hooks[result]) results.inc({ event, result }, count);
  counter(page, 'hook_seconds_total', 'Total duration of the hooks.', null, { all: hooks.seconds });
  new Gauge({
    name: 'process_resident_memory_bytes',
    help: 'Resident memory of the program.',
    registers: [page],
  }).set(process.memoryUsage.rss());
  return { contentType: page.contentType, text: await page.metrics() };
}

function counter(page: Page, name: string, help: string, label: string | null, values: Values): void {
  const metric = new Counter({ ...described(name, help, label), registers: [page] });
  for (const [key, value] of Object.entries(values)) metric.inc(label ? { [label]: key } : {}, value);
}

function gauge(page: Page, name: string, help: string, label: string | null, values: Values): void {
  const metric = new Gauge({ ...described(name, help, label), registers: [page] });
  for (const [key, value] of Object.entries(values)) metric.set(label ? { [label]: key } : {}, value);
}

function described(name: string, help: string, label: string | null) {
  return { name: `envd_kubernetes_${name}`, help, labelNames: label ? [label] : [] };
}
