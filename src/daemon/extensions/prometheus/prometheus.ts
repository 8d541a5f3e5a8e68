import { readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { type ELDHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import type { CallTally } from '../../../base/http/call-tally.ts';
import type { Connections } from '../../../base/http/connections.ts';
import { INTERFACE_VERSION } from '../../../base/program/version.ts';
import type { Quota } from '../../../base/quota.ts';
import type { Durations, Transfers } from '../../../base/tally.ts';
import type { LineCounts } from '../../services/collector/log-queue.ts';
import type { ForwardPlaces } from '../../services/ports/forward.ts';
import type { WorkloadCgroups } from '../../services/process/cgroups/cgroups.ts';
import type { ProcessCounts } from '../../services/process/output/events.ts';
import { callHistogram } from './call-histogram.ts';
import {
  by,
  CONTENT_TYPES,
  type Metric,
  renderMetrics,
  type TextFormat,
  type Values,
} from './metrics-page.ts';

interface Freezing {
  readonly durations: Durations;
  readonly active: boolean;
  readonly watchdogThaws: number;
}

/** What the log has counted. */
export interface LogFigures {
  readonly output: { readonly lost: number };
  /** The lines that wait for the collector; null: there is no collector. */
  readonly queue: { readonly bytes: number; readonly counts: LineCounts } | null;
}

/** The sources of the daemon's own metrics. */
export interface DaemonTelemetry {
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
  readonly places: { readonly taken: number };
  readonly connections: Pick<Connections, 'open' | 'counts'>;
  readonly unread: Pick<Quota, 'sum' | 'dropped'>;
  readonly requests: Pick<Quota, 'sum' | 'dropped'>;
  readonly log: LogFigures;
  readonly cgroups: Pick<WorkloadCgroups, 'all'>;
  readonly ports: {
    readonly places: Pick<ForwardPlaces, 'open' | 'accepted' | 'refused'>;
    readonly size: number;
  };
}

/** Renders the metrics in Prometheus' text format or in OpenMetrics. The daemon counts in plain numbers. */
export class Exporter {
  readonly #telemetry: DaemonTelemetry;
  /** Measures each iteration of the event loop from now on, without a timer. */
  readonly #loopDelay = monitorEventLoopDelay({ samplePerIteration: true });

  constructor(telemetry: DaemonTelemetry) {
    this.#telemetry = telemetry;
    this.#loopDelay.enable();
  }

  async render(format: TextFormat): Promise<{ readonly contentType: string; readonly text: string }> {
    const telemetry = this.#telemetry;
    const metrics = [
      ...callMetrics(telemetry),
      ...logMetrics(telemetry),
      ...processMetrics(telemetry),
      ...workloadMetrics(telemetry),
      ...fileMetrics(telemetry),
      ...pauseMetrics(telemetry),
      ...portMetrics(telemetry),
      ...selfMetrics(telemetry, this.#loopDelay),
    ];
    const text = await renderMetrics(metrics, format);
    return { contentType: CONTENT_TYPES[format], text: withCalls(text, telemetry.calls) };
  }
}

const END = '# EOF\n';

function withCalls(text: string, calls: CallTally): string {
  const end = text.endsWith(END) ? END : '';
  return `${text.slice(0, text.length - end.length)}${callHistogram(calls)}${end}`;
}

function callMetrics({ calls, places, connections, unread, requests }: DaemonTelemetry): Metric[] {
  const counted = [...calls.operations].flatMap(([operation, { codes }]) =>
    Array.from(codes, ([code, count]) => [{ operation, code }, count] as const),
  );
  const limited = 'Connections ended by --max-connections, or because too many requests waited.';
  return [
    ['envd_calls_total', 'Calls that have ended, by operation and code.', counted],
    ['envd_streams', 'Open streams.', places.taken],
    ['envd_connections', 'Open connections.', connections.open],
    ['envd_connections_limited_total', limited, by('action', { ...connections.counts })],
    ['envd_unread_bytes', 'Bytes kept for slow readers.', unread.sum],
    ['envd_readers_dropped_total', 'Readers dropped by --unread-bytes.', unread.dropped],
    ['envd_request_bytes', 'Bytes kept of requests that are being handled.', requests.sum],
    ['envd_requests_dropped_total', 'Requests dropped by --request-bytes.', requests.dropped],
  ];
}

function logMetrics({ log: { output, queue } }: DaemonTelemetry): Metric[] {
  const lost: Metric = ['envd_log_lines_lost_total', 'Lines of the log that were not written.', output.lost];
  if (queue === null) return [lost];
  const lines = by('result', { ...queue.counts });
  return [
    lost,
    ['envd_collector_queue_bytes', 'Log lines that wait for the collector.', queue.bytes],
    ['envd_collector_lines_total', 'Log lines for the collector, by result.', lines],
  ];
}

function processMetrics({ processes, records }: DaemonTelemetry): Metric[] {
  const { started, ended, output } = processes.counts;
  const running = processes.list().length;
  const unkept = 'Records for the next daemon after a crash that could not be kept.';
  return [
    ['envd_processes_running', 'Running processes that were started by clients.', running],
    ['envd_processes_started_total', 'Processes started.', started],
    ['envd_processes_ended_total', 'Processes ended, by reason.', by('reason', ended)],
    ['envd_process_output_bytes_total', 'Bytes written by processes.', by('stream', output)],
    ['envd_record_failures_total', unkept, records.failures],
  ];
}

/** Returns the figures that the kernel reports; others are left out. */
function workloadMetrics({ cgroups }: DaemonTelemetry): Metric[] {
  const figures = (file: string, form: RegExp, scale = 1): Values =>
    cgroups.all().flatMap((cgroup) => {
      const value = cgroup.figure(file, form);
      return value === null ? [] : [[{ cgroup: basename(cgroup.path) }, value * scale] as const];
    });
  const bytes = figures('memory.current', /^(\d+)$/m);
  const stalled = figures('memory.pressure', /^some .*total=(\d+)$/m, 1e-6);
  const kills = figures('memory.events', /^oom_kill (\d+)$/m);
  const waited = 'Time in which tasks of the workload waited for memory.';
  return [
    ['envd_workload_memory_bytes', 'Memory of the workload.', bytes],
    ['envd_workload_memory_stalled_seconds_total', waited, stalled],
    ['envd_workload_memory_kills_total', 'Out-of-memory kills.', kills],
  ];
}

function fileMetrics({ watcher, uploads, downloads }: DaemonTelemetry): Metric[] {
  const rescans = 'Rescan events that readers took because other events were dropped.';
  const sent = 'Bytes sent for downloads, including headers.';
  return [
    ['envd_watches', 'Open watches.', watcher.open],
    ['envd_watch_rescans_total', rescans, watcher.rescans],
    ['envd_uploads_total', 'Files uploaded.', uploads.count],
    ['envd_upload_bytes_total', 'Bytes received for uploads.', uploads.bytes],
    ['envd_downloads_total', 'Downloads answered.', downloads.count],
    ['envd_download_bytes_total', sent, downloads.bytes],
  ];
}

function pauseMetrics({ freezer, filesystemFreezer, collapser }: DaemonTelemetry): Metric[] {
  const durations = { freeze: freezer, fsfreeze: filesystemFreezer, collapse: collapser };
  const figures = (figure: 'count' | 'seconds' | 'lastSeconds'): Values =>
    Object.entries(durations).map(([operation, { durations }]) => [{ operation }, durations[figure]]);
  const frozen = { workload: Number(freezer.active), filesystem: Number(filesystemFreezer.active) };
  const thaws = { workload: freezer.watchdogThaws, filesystem: filesystemFreezer.watchdogThaws };
  const [total, last] = ['Total duration of these operations.', 'Duration of the last operation.'];
  return [
    ['envd_pause_operations_total', 'Successful operations before a pause.', figures('count')],
    ['envd_pause_operation_seconds_total', total, figures('seconds')],
    ['envd_pause_operation_last_seconds', last, figures('lastSeconds')],
    ['envd_frozen', '1 while it is frozen, otherwise 0.', by('what', frozen)],
    [
      'envd_watchdog_thaws_total',
      'Thaws by the watchdog, because no call thawed in time.',
      by('what', thaws),
    ],
  ];
}

function portMetrics({ ports }: DaemonTelemetry): Metric[] {
  const { open, accepted, refused } = ports.places;
  const outcomes = by('outcome', { accepted, refused });
  return [
    ['envd_forwarded_ports', 'Localhost listeners that are forwarded.', ports.size],
    ['envd_forwarded_connections', 'Open connections to them through the daemon.', open],
    ['envd_forwarded_connections_total', 'Connections to them, by outcome.', outcomes],
  ];
}

function selfMetrics({ version }: DaemonTelemetry, loopDelay: ELDHistogram): Metric[] {
  const { rss, heapUsed, heapTotal, external } = process.memoryUsage();
  const { userCPUTime, systemCPUTime } = process.resourceUsage();
  const descriptors = readdirSync('/proc/self/fd').length;
  const started = Math.round(Date.now() / 1000 - process.uptime());
  const build: Values = [[{ version, interface: INTERFACE_VERSION }, 1]];
  const heap = by('kind', { used: heapUsed, total: heapTotal, external });
  const seconds = (quantile: number) => loopDelay.percentile(quantile * 100) / 1e9;
  const delays = by('quantile', { 0.5: seconds(0.5), 0.99: seconds(0.99), 1: loopDelay.max / 1e9 });
  return [
    ['envd_build_info', 'Versions of the build and of the interface.', build],
    ['process_cpu_seconds_total', 'CPU time of the daemon.', (userCPUTime + systemCPUTime) / 1e6],
    ['process_resident_memory_bytes', 'Resident memory of the daemon.', rss],
    ['process_open_fds', 'Open descriptors of the daemon.', descriptors],
    ['process_start_time_seconds', 'Start time of the daemon, Unix time.', started],
    ['envd_heap_bytes', 'Memory of the JavaScript heap.', heap],
    ['envd_event_loop_delay_seconds', 'Delay of the event loop since the first scrape.', delays],
  ];
}
