import { Counter, Gauge, Registry as Page } from 'prom-client';
import type { EventDelivery } from './expiry/event-delivery.ts';
import type { MachineComparison } from './expiry/machine-comparison.ts';
import type { ExpiryTally } from './expiry/tally.ts';
import type { Exchanges } from './proxy/exchanges.ts';
import type { Registry } from './registry/registry.ts';
import type { Result } from './routes/decisions.ts';
import type { RequestTimes } from './routes/request-times.ts';

/** The parts that the metrics are read from. */
export interface GatewayTelemetry {
  readonly registry: Registry;
  readonly results: Readonly<Record<Result, number>>;
  readonly exchanges: Exchanges;
  readonly times: RequestTimes;
  readonly expiry: ExpiryTally;
  /** It is null without a list hook. */
  readonly comparison: MachineComparison | null;
  /** It is null without an event hook. */
  readonly delivery: EventDelivery | null;
}

type Values = Readonly<Record<string, number>>;

/** Returns all metrics in the text format of Prometheus, with its content type. Throws when the registry cannot be read. */
export async function renderGatewayMetrics(
  telemetry: GatewayTelemetry,
): Promise<{ readonly contentType: string; readonly text: string }> {
  const page = new Page();
  const phases = await telemetry.registry.countPhases();
  gauge(page, 'envd_gateway_sandboxes', 'Sandboxes in the registry.', 'phase', phases);
  addRequests(page, telemetry);
  addExpiries(page, telemetry.expiry);
  if (telemetry.comparison) addMachineComparison(page, telemetry.comparison);
  if (telemetry.delivery) {
    const { tally } = telemetry.delivery;
    counter(page, 'envd_gateway_events_total', 'Events for the event hook.', 'result', tally);
  }
  await addUsage(page, telemetry.registry);
  gauge(page, 'process_resident_memory_bytes', 'Resident memory of the gateway.', null, {
    all: process.memoryUsage.rss(),
  });
  return { contentType: page.contentType, text: await page.metrics() };
}

function addRequests(page: Page, { results, exchanges, times }: GatewayTelemetry): void {
  for (const metric of Object.values(times)) page.registerMetric(metric);
  counter(page, 'envd_gateway_requests_total', 'Requests for sandboxes.', 'result', results);
  gauge(page, 'envd_gateway_exchanges', 'Requests, streams and upgraded connections in flight.', null, {
    all: exchanges.count,
  });
  counter(
    page,
    'envd_gateway_exchanges_ended_total',
    'Exchanges that the gateway closed, for instance because their sandbox had expired.',
    null,
    {
      all: exchanges.ended,
    },
  );
}

function addExpiries(page: Page, { outcomes, others, failures, hooks }: ExpiryTally): void {
  counter(page, 'envd_gateway_expiries_total', 'Expiries that have ended.', 'outcome', outcomes);
  counter(page, 'envd_gateway_expiry_failures_total', 'Failed steps of the lifecycle.', 'step', failures);
  counter(page, 'envd_gateway_resumes_total', 'Sandboxes that a hook has resumed.', null, {
    all: others.resumed,
  });
  counter(page, 'envd_gateway_kills_total', 'Sandboxes that a hook has removed on request.', null, {
    all: others.killed,
  });
  counter(page, 'envd_gateway_creates_total', 'Sandboxes that a hook has created.', null, {
    all: others.created,
  });
  counter(page, 'envd_gateway_hooks_total', 'Hooks that succeeded.', null, { all: hooks.count });
  counter(page, 'envd_gateway_hook_seconds_total', 'Total duration of the hooks that succeeded.', null, {
    all: hooks.seconds,
  });
}

async function addUsage(page: Page, registry: Registry): Promise<void> {
  const metric = new Counter({
    name: 'envd_gateway_sandbox_seconds_total',
    help: 'Time for which sandboxes have run, for all gateways of the registry.',
    labelNames: ['owner', 'template'],
    registers: [page],
  });
  for (const { owner, template, seconds } of await registry.shared.usage())
    metric.inc({ owner, template }, seconds);
}

function addMachineComparison(page: Page, { counts, tally }: MachineComparison): void {
  const { compared, failed, removed } = tally;
  gauge(page, 'envd_gateway_differences', 'Machines without records, and the reverse.', 'difference', counts);
  const results = { compared, failed };
  counter(
    page,
    'envd_gateway_comparisons_total',
    'Comparisons with the list of machines.',
    'result',
    results,
  );
  counter(page, 'envd_gateway_orphans_removed_total', 'Machines without records that were removed.', null, {
    all: removed,
  });
}

function counter(page: Page, name: string, help: string, label: string | null, values: Values): void {
  const metric = new Counter({ name, help, labelNames: label ? [label] : [], registers: [page] });
  for (const [key, value] of Object.entries(values)) metric.inc(label ? { [label]: key } : {}, value);
}

function gauge(page: Page, name: string, help: string, label: string | null, values: Values): void {
  const metric = new Gauge({ name, help, labelNames: label ? [label] : [], registers: [page] });
  for (const [key, value] of Object.entries(values)) metric.set(label ? { [label]: key } : {}, value);
}
