import { Counter, Gauge, Registry, type RegistryContentType } from 'prom-client';

export type TextFormat = 'prometheus' | 'openmetrics';

export const CONTENT_TYPES = {
  prometheus: Registry.PROMETHEUS_CONTENT_TYPE,
  openmetrics: Registry.OPENMETRICS_CONTENT_TYPE,
} as const;

/** A figure, or one for each set of labels. */
export type Values = number | readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[];

/** The metrics of one response. */
export class Page {
  readonly #registry = new Registry<RegistryContentType>();

  constructor(format: TextFormat) {
    this.#registry.setContentType(CONTENT_TYPES[format]);
  }

  counter(name: string, help: string, values: Values): void {
    const counter = new Counter({ name, help, labelNames: labelNames(values), registers: [] });
    this.#registry.registerMetric(counter);
    for (const [labels, value] of labelled(values)) counter.inc(labels, value);
  }

  gauge(name: string, help: string, values: Values): void {
    const gauge = new Gauge({ name, help, labelNames: labelNames(values), registers: [] });
    this.#registry.registerMetric(gauge);
    for (const [labels, value] of labelled(values)) gauge.set(labels, value);
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }
}

function labelled(values: Values): Exclude<Values, number> {
  return typeof values === 'number' ? [[{}, values]] : values;
}

function labelNames(values: Values): string[] {
  return Object.keys(labelled(values)[0]?.[0] ?? {});
}

/** One figure for each name of this label. */
export function by(label: string, counts: Readonly<Record<string, number>>): Values {
  return Object.entries(counts).map(([name, value]) => [{ [label]: name }, value]);
}
