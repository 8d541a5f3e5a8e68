import { Counter, Gauge, Registry, type RegistryContentType } from 'prom-client';

export type TextFormat = 'prometheus' | 'openmetrics';

export const CONTENT_TYPES = {
  prometheus: Registry.PROMETHEUS_CONTENT_TYPE,
  openmetrics: Registry.OPENMETRICS_CONTENT_TYPE,
} as const;

/** The value of a metric, or a value for each set of labels. */
export type Values = number | readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[];

/** A metric. It is a counter if its name ends in `_total`, as the names of counters do, and a gauge otherwise. */
export type Metric = readonly [name: string, help: string, values: Values];

/** Renders the metrics as text. Each response uses a new registry of the library. */
export function renderMetrics(metrics: readonly Metric[], format: TextFormat): Promise<string> {
  const registry = new Registry<RegistryContentType>();
  registry.setContentType(CONTENT_TYPES[format]);
  for (const [name, help, values] of metrics) {
    const labeled = typeof values === 'number' ? [[{}, values] as const] : values;
    const options = { name, help, labelNames: Object.keys(labeled[0]?.[0] ?? {}), registers: [] };
    const metric = name.endsWith('_total') ? new Counter(options) : new Gauge(options);
    for (const [labels, value] of labeled) metric.inc(labels, value);
    registry.registerMetric(metric);
  }
  return registry.metrics();
}

/** Returns a value for each name of this label. */
export function by(label: string, counts: Readonly<Record<string, number>>): Values {
  return Object.entries(counts).map(([name, value]) => [{ [label]: name }, value]);
}
