import { type ELDHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, Gauge, Registry, type RegistryContentType } from 'prom-client';
import type { Durations, Transfers } from '../../base/tally.ts';
import { INTERFACE_VERSION } from '../../base/version.ts';
import type { ProcessCounts } from '../services/process/events.ts';

/** The sources of the daemon's own metrics. */
export interface Telemetry {
  /** The version of the build. */
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
 * Exports the metrics in Prometheus' text format or in OpenMetrics. The daemon counts in plain numbers; a registry of
 * the library is built for each response.
 */
export class Exporter {
  readonly #telemetry: Telemetry;
  /** Measures each iteration of the loop from now on, without a timer. */
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

/** The metrics of one response. */
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
    'Running processes that were started by clients.',
    processes.list().length,
  );
  page.counter('envd_processes_started_total', 'Processes started.', started);
  page.counter('envd_processes_ended_total', 'Processes ended, by reason.', by('reason', ended));
  page.counter('envd_process_output_bytes_total', 'Bytes written by processes.', by('stream', output));
}

function addFiles(page: Page, { watcher, uploads, downloads }: Telemetry): void {
  page.gauge('envd_watches', 'Open watches.', watcher.open);
  page.counter(
    'envd_watch_rescans_total',
    'Rescan events taken by readers, each for dropped events.',
    watcher.rescans,
  );
  page.counter('envd_uploads_total', 'Files uploaded.', uploads.count);
  page.counter('envd_upload_bytes_total', 'Bytes received for uploads.', uploads.bytes);
  page.counter('envd_downloads_total', 'Downloads answered.', downloads.count);
  page.counter('envd_download_bytes_total', 'Bytes sent for downloads, including headers.', downloads.bytes);
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
  page.counter('envd_pause_operations_total', 'Successful operations before a pause.', figures('count'));
  page.counter(
    'envd_pause_operation_seconds_total',
    'Total duration of these operations.',
    figures('seconds'),
  );
  page.gauge('envd_pause_operation_last_seconds', 'Duration of the last operation.', figures('lastSeconds'));
}

function addSelf(page: Page, { version }: Telemetry): void {
  page.gauge('envd_build_info', 'Versions of the build and of the interface.', [
    [{ version, interface: INTERFACE_VERSION }, 1],
  ]);
  const memory = process.memoryUsage();
  const { userCPUTime, systemCPUTime } = process.resourceUsage();
  const started = Math.round(Date.now() / 1000 - process.uptime());
  page.counter('process_cpu_seconds_total', 'CPU time of the daemon.', (userCPUTime + systemCPUTime) / 1e6);
  page.gauge('process_resident_memory_bytes', 'Resident memory of the daemon.', memory.rss);
  page.gauge('process_start_time_seconds', 'Start time of the daemon, Unix time.', started);
  page.gauge('envd_heap_bytes', 'Memory of the JavaScript heap.', [
    [{ kind: 'used' }, memory.heapUsed],
    [{ kind: 'total' }, memory.heapTotal],
    [{ kind: 'external' }, memory.external],
  ]);
}

function addLoopDelay(page: Page, loopDelay: ELDHistogram): void {
  const seconds = (quantile: number) => loopDelay.percentile(quantile * 100) / 1e9;
  page.gauge('envd_event_loop_delay_seconds', 'Delay of the event loop since the first scrape.', [
    [{ quantile: '0.5' }, seconds(0.5)],
    [{ quantile: '0.99' }, seconds(0.99)],
    [{ quantile: '1' }, loopDelay.max / 1e9],
  ]);
}
