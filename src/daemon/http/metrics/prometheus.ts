import { readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { type ELDHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import type { CallTally } from '../../../base/http/call-tally.ts';
import type { Connections } from '../../../base/http/connections.ts';
import { INTERFACE_VERSION } from '../../../base/program/version.ts';
import type { Durations, Transfers } from '../../../base/tally.ts';
import type { Unread } from '../../../base/unread.ts';
import { type WorkloadMemory, workloadMemory } from '../../linux/cgroups/workload-memory.ts';
import type { LineCounts } from '../../services/collector/log-queue.ts';
import type { ForwardPlaces } from '../../services/ports/forward.ts';
import type { WorkloadCgroups } from '../../services/process/cgroups/cgroups.ts';
import type { ProcessCounts } from '../../services/process/output/events.ts';
import { callHistogram } from './call-histogram.ts';
import { by, CONTENT_TYPES, Page, type TextFormat, type Values } from './metrics-page.ts';

interface Freezing {
  readonly durations: Durations;
  readonly active: boolean;
  readonly watchdogThaws: number;
}

/** Where the log goes. */
export interface LogFigures {
  readonly output: { readonly lost: number };
  /** Of lines for the collector; null: there is none. */
  readonly queue: { readonly bytes: number; readonly counts: LineCounts } | null;
}

/** The sources of the daemon's own metrics. */
export interface Telemetry {
  /** The version of the build. */
  readonly version: string;
  readonly processes: { readonly counts: ProcessCounts; list(): { readonly length: number } };
  readonly records: { readonly failures: number };
  readonly watcher: { readonly open: number; readonly rescans: number };
  readonly freezer: Freezing;
  readonly filesystemFreezer: Freezing;
  readonly collapser: { readonly durations: Durations };
  readonly uploads: Transfers;
  readonly downloads: Transfers;
  readonly calls: CallTally;
  readonly places: { readonly open: number };
  readonly connections: Pick<Connections, 'open' | 'counts'>;
  readonly unread: Pick<Unread, 'sum' | 'dropped'>;
  readonly requests: Pick<Unread, 'sum' | 'dropped'>;
  readonly log: LogFigures;
  readonly cgroups: Pick<WorkloadCgroups, 'user' | 'ptys'>;
  readonly ports: {
    readonly places: Pick<ForwardPlaces, 'open' | 'accepted' | 'refused'>;
    readonly size: number;
  };
}

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
    addCalls(page, this.#telemetry);
    addProcesses(page, this.#telemetry);
    addWorkload(page, this.#telemetry);
    addFiles(page, this.#telemetry);
    addPauses(page, this.#telemetry);
    addPorts(page, this.#telemetry);
    addSelf(page, this.#telemetry);
    addLoopDelay(page, this.#loopDelay);
    return { contentType: CONTENT_TYPES[format], text: withCalls(await page.text(), this.#telemetry.calls) };
  }
}

const END = '# EOF\n';

function withCalls(text: string, calls: CallTally): string {
  const isOpenMetrics = text.endsWith(END);
  return `${isOpenMetrics ? text.slice(0, -END.length) : text}${callHistogram(calls)}${isOpenMetrics ? END : ''}`;
}

function addCalls(page: Page, telemetry: Telemetry): void {
  const { calls, places, connections, unread, requests } = telemetry;
  const counted = [...calls.operations].flatMap(([operation, { codes }]) =>
    Array.from(codes, ([code, count]) => [{ operation, code }, count] as const),
  );
  page.counter('envd_calls_total', 'Calls that have ended, by operation and code.', counted);
  page.gauge('envd_streams', 'Open streams.', places.open);
  page.gauge('envd_connections', 'Open connections.', connections.open);
  page.counter(
    'envd_connections_limited_total',
    'Connections ended by --max-connections, or because too many requests waited.',
    by('action', { ...connections.counts }),
  );
  page.gauge('envd_unread_bytes', 'Kept for slow readers.', unread.sum);
  page.counter('envd_readers_dropped_total', 'Readers dropped by --unread-bytes.', unread.dropped);
  page.gauge('envd_request_bytes', 'Kept of requests under way.', requests.sum);
  page.counter('envd_requests_dropped_total', 'Requests dropped by --request-bytes.', requests.dropped);
  addLog(page, telemetry);
}

function addLog(page: Page, { log: { output, queue } }: Telemetry): void {
  page.counter('envd_log_lines_lost_total', 'Lines of the log that were not written.', output.lost);
  if (queue === null) return;
  const lines = by('result', { ...queue.counts });
  page.gauge('envd_collector_queue_bytes', 'Log lines that wait for the collector.', queue.bytes);
  page.counter('envd_collector_lines_total', 'Log lines for the collector, by result.', lines);
}

/** Only what the kernel tells. */
function addWorkload(page: Page, { cgroups }: Telemetry): void {
  const memory = [cgroups.user, cgroups.ptys].flatMap((cgroup) =>
    cgroup ? [[basename(cgroup.path), workloadMemory(cgroup.path)] as const] : [],
  );
  const figures = (read: (memory: WorkloadMemory) => number | null): Values =>
    memory.flatMap(([cgroup, one]) => {
      const value = read(one);
      return value === null ? [] : [[{ cgroup }, value] as const];
    });
  page.gauge(
    'envd_workload_memory_bytes',
    'Memory of the workload.',
    figures(({ bytes }) => bytes),
  );
  page.counter(
    'envd_workload_memory_stalled_seconds_total',
    'Time in which tasks of the workload waited for memory.',
    figures(({ stalledMicros }) => (stalledMicros === null ? null : stalledMicros / 1e6)),
  );
  page.counter(
    'envd_workload_memory_kills_total',
    'Out-of-memory kills.',
    figures(({ kills }) => kills),
  );
}

function addProcesses(page: Page, { processes, records }: Telemetry): void {
  const { started, ended, output } = processes.counts;
  page.gauge(
    'envd_processes_running',
    'Running processes that were started by clients.',
    processes.list().length,
  );
  page.counter('envd_processes_started_total', 'Processes started.', started);
  page.counter('envd_processes_ended_total', 'Processes ended, by reason.', by('reason', ended));
  page.counter('envd_process_output_bytes_total', 'Bytes written by processes.', by('stream', output));
  page.counter(
    'envd_record_failures_total',
    'Records for a daemon after a crash that could not be kept.',
    records.failures,
  );
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
  const frozen = { workload: Number(freezer.active), filesystem: Number(filesystemFreezer.active) };
  page.gauge('envd_frozen', 'Whether it is frozen: 1, or 0.', by('what', frozen));
  const thaws = { workload: freezer.watchdogThaws, filesystem: filesystemFreezer.watchdogThaws };
  page.counter('envd_watchdog_thaws_total', 'Thaws because nobody else did.', by('what', thaws));
  page.gauge('envd_pause_operation_last_seconds', 'Duration of the last operation.', figures('lastSeconds'));
}

function addPorts(page: Page, { ports }: Telemetry): void {
  const { open, accepted, refused } = ports.places;
  page.gauge('envd_forwarded_ports', 'Localhost listeners that are forwarded.', ports.size);
  page.gauge('envd_forwarded_connections', 'Open connections to them through the daemon.', open);
  page.counter(
    'envd_forwarded_connections_total',
    'Connections to them, by outcome.',
    by('outcome', { accepted, refused }),
  );
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
  page.gauge('process_open_fds', 'Open descriptors of the daemon.', readdirSync('/proc/self/fd').length);
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
