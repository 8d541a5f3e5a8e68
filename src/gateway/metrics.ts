import { Counter, Gauge, Registry as Page } from 'prom-client';
import type { ExpiryTally } from './expiry/expiration.ts';
import { PHASES } from './leases/sandbox.ts';
import type { Exchanges } from './proxy/exchanges.ts';
import type { Registry } from './registry/registry.ts';
import type { Passage } from './routes/router.ts';

/** What the gateway tells of itself. */
export interface Telemetry {
  readonly registry: Registry;
  readonly passages: Readonly<Record<Passage, number>>;
  readonly exchanges: Exchanges;
  readonly expiry: ExpiryTally;
}

type Values = Readonly<Record<string, number>>;

/** Everything in Prometheus' text format; the figures are plain numbers until somebody asks. */
export async function renderMetrics(
  telemetry: Telemetry,
): Promise<{ readonly contentType: string; readonly text: string }> {
  const page = new Page();
  const sandboxes = await telemetry.registry.list();
  const phases = PHASES.map((phase) => [phase, sandboxes.filter((each) => each.phase === phase).length]);
  gauge(page, 'envd_gateway_sandboxes', 'Sandboxes in the registry.', 'phase', Object.fromEntries(phases));
  addRequests(page, telemetry);
  addExpiries(page, telemetry.expiry);
  gauge(page, 'process_resident_memory_bytes', 'Resident memory of the gateway.', null, {
    all: process.memoryUsage.rss(),
  });
  return { contentType: page.contentType, text: await page.metrics() };
}

function addRequests(page: Page, { passages, exchanges }: Telemetry): void {
  counter(page, 'envd_gateway_requests_total', 'Requests for sandboxes.', 'result', passages);
  gauge(page, 'envd_gateway_exchanges', 'What is open between clients and sandboxes.', null, {
    all: exchanges.count,
  });
  counter(
    page,
    'envd_gateway_exchanges_ended_total',
    'What was broken off since the sandbox had gone.',
    null,
    {
      all: exchanges.ended,
    },
  );
}

function addExpiries(page: Page, { outcomes, failures, hooks }: ExpiryTally): void {
  counter(page, 'envd_gateway_expiries_total', 'Sandboxes whose time was up.', 'outcome', outcomes);
  counter(
    page,
    'envd_gateway_expiry_failures_total',
    'Steps of expiries that have failed.',
    'step',
    failures,
  );
  counter(page, 'envd_gateway_hooks_total', 'Hooks that have succeeded.', null, { all: hooks.count });
  counter(page, 'envd_gateway_hook_seconds_total', 'Time that they took.', null, { all: hooks.seconds });
}

function counter(page: Page, name: string, help: string, label: string | null, values: Values): void {
  const metric = new Counter({ name, help, labelNames: label ? [label] : [], registers: [page] });
  for (const [key, value] of Object.entries(values)) metric.inc(label ? { [label]: key } : {}, value);
}

function gauge(page: Page, name: string, help: string, label: string | null, values: Values): void {
  const metric = new Gauge({ name, help, labelNames: label ? [label] : [], registers: [page] });
  for (const [key, value] of Object.entries(values)) metric.set(label ? { [label]: key } : {}, value);
}
