import { type ELDHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, Gauge, Registry, type RegistryContentType } from 'prom-client';
import type { Durations, Transfers } from '../../base/tally.ts';
import { INTERFACE_VERSION } from '../../base/version.ts';
import type { ProcessCounts } from '../services/process/table.ts';

/** What the daemon tells of itself. */
export interface Telemetry {
  /** Of the build. */
  readonly version: string;
  readonly processes: { readonly counts: ProcessCounts; list(): { readonly length: number } };
  readonly watcher: { readonly open: number; readonly rescans: number };
  readonly freezer: { readonly durations: Durations };
  readonly filesystemFreezer: { readonly durations: Durations };
  readonly collapser: { readonly durations: Durations };
  readonly uploads: Transfers;
  readonly downloads: Transfers;
}

export type TextFormat = 'prometheus' | 'openmetrics';

const CONTENT_TYPES = {
  prometheus: Registry.PROMETHEUS_CONTENT_TYPE,
  openmetrics: Registry.OPENMETRICS_CONTENT_TYPE,
} as const;

type Values = number | readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[];

/**
 * Everything in Prometheus' text format or in OpenMetrics. The figures are plain numbers all over the daemon, and put
 * into the library's terms only here, for one answer.
 */
export class Exporter {
  readonly #telemetry: Telemetry;
  /** Without a timer: the loop's own turns are measured, from now on. */
  readonly #loopDelay = monitorEventLoopDelay({ samplePerIteration: true });

  constructor(telemetry: Telemetry) {
    this.#telemetry = telemetry;
    this.#loopDelay.enable();
  }

  async render(format: TextFormat): Promise<{ readonly contentType: string; readonly text: string }> {
    const page = new Page(format);
    addProcesses(page, this.#telemetry);
    addFiles(page, this.#telemetry);
    addPauses(page, this.#telemetry);
    addSelf(page, this.#telemetry);
    addLoopDelay(page, this.#loopDelay);
    return { contentType: CONTENT_TYPES[format], text: await page.text() };
  }
}

/** One answer. */
class Page {
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

function by(label: string, counts: Readonly<Record<string, number>>): Values {
  return Object.entries(counts).map(([name, value]) => [{ [label]: name }, value]);
}

function addProcesses(page: Page, { processes }: Telemetry): void {
  const { started, ended, output } = processes.counts;
  page.gauge(
    'envd_processes_running',
    'Processes that clients have started and that run.',
    processes.list().length,
  );
  page.counter('envd_processes_started_total', 'Processes that were started.', started);
  page.counter('envd_processes_ended_total', 'Processes that have ended, by reason.', by('reason', ended));
  page.counter('envd_process_output_bytes_total', 'Bytes that processes have written.', by('stream', output));
}

function addFiles(page: Page, { watcher, uploads, downloads }: Telemetry): void {
  page.gauge('envd_watches', 'Watches that clients have open.', watcher.open);
  page.counter(
    'envd_watch_rescans_total',
    'Times that events were dropped and a reader told so.',
    watcher.rescans,
  );
  page.counter('envd_uploads_total', 'Files that were uploaded.', uploads.count);
  page.counter('envd_upload_bytes_total', 'Bytes that were received for uploads.', uploads.bytes);
  page.counter('envd_downloads_total', 'Downloads that were answered.', downloads.count);
  page.counter(
    'envd_download_bytes_total',
    'Bytes that were sent for downloads, heads included.',
    downloads.bytes,
  );
}

function addPauses(page: Page, { freezer, filesystemFreezer, collapser }: Telemetry): void {
  const operations = {
    freeze: freezer.durations,
    fsfreeze: filesystemFreezer.durations,
    collapse: collapser.durations,
  };
  const figures = (figure: keyof Durations & ('count' | 'seconds' | 'lastSeconds')) =>
    by(
      'operation',
      Object.fromEntries(Object.entries(operations).map(([name, durations]) => [name, durations[figure]])),
    );
  page.counter('envd_pause_operations_total', 'Operations before a pause that succeeded.', figures('count'));
  page.counter('envd_pause_operation_seconds_total', 'Time that they took.', figures('seconds'));
  page.gauge('envd_pause_operation_last_seconds', 'Time that the last one took.', figures('lastSeconds'));
}

function addSelf(page: Page, { version }: Telemetry): void {
  page.gauge('envd_build_info', 'The version of the build, and the level of its interface.', [
    [{ version, interface: INTERFACE_VERSION }, 1],
  ]);
  const memory = process.memoryUsage();
  const { userCPUTime, systemCPUTime } = process.resourceUsage();
  const started = Math.round(Date.now() / 1000 - process.uptime());
  page.counter('process_cpu_seconds_total', 'CPU time of the daemon.', (userCPUTime + systemCPUTime) / 1e6);
  page.gauge('process_resident_memory_bytes', 'Resident memory of the daemon.', memory.rss);
  page.gauge('process_start_time_seconds', 'Start of the daemon, Unix time.', started);
  page.gauge('envd_heap_bytes', 'Memory of JavaScript objects.', [
    [{ kind: 'used' }, memory.heapUsed],
    [{ kind: 'total' }, memory.heapTotal],
    [{ kind: 'external' }, memory.external],
  ]);
}

function addLoopDelay(page: Page, loopDelay: ELDHistogram): void {
  const seconds = (quantile: number) => loopDelay.percentile(quantile * 100) / 1e9;
  page.gauge('envd_event_loop_delay_seconds', 'Turns of the event loop since they were first asked for.', [
    [{ quantile: '0.5' }, seconds(0.5)],
    [{ quantile: '0.99' }, seconds(0.99)],
    [{ quantile: '1' }, loopDelay.max / 1e9],
  ]);
}
