import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Fastify from 'fastify';
import { describe, expect, onTestFinished, test } from 'vitest';
import { CallTally } from '../../../../../src/base/http/call-tally.ts';
import { Durations, Transfers } from '../../../../../src/base/tally.ts';
import { prometheusExtension } from '../../../../../src/daemon/extensions/prometheus/extension.ts';
import type { DaemonTelemetry } from '../../../../../src/daemon/extensions/prometheus/prometheus.ts';
import { metricsRoutes } from '../../../../../src/daemon/http/rest/guest.ts';
import { Cgroup } from '../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import { MetricsReader } from '../../../../../src/daemon/services/guest/metrics.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

function telemetry(): DaemonTelemetry {
  const durations = (count: number, seconds: number, lastSeconds: number) =>
    Object.assign(new Durations(), { count, seconds, lastSeconds });
  const calls = new CallTally();
  calls.add('POST /a"b', 'not_found', 0.0005);
  calls.add('POST /a"b', '200', 0.3);
  calls.add('POST /a"b', '200', 60);
  return {
    ports: { places: { open: 1, accepted: 3, refused: 2 }, size: 2 },
    version: '1.2.3',
    processes: {
      counts: {
        started: 9,
        ended: { exited: 3, signaled: 2, deadline: 1, unknown: 0, 'out of memory': 1 },
        output: { stdout: 1000, stderr: 20, pty: 3 },
      },
      list: () => [1, 2],
    },
    records: { failures: 2 },
    watcher: { open: 4, rescans: 5 },
    freezer: { durations: durations(2, 0.5, 0.25), active: true, watchdogThaws: 1 },
    filesystemFreezer: { durations: durations(1, 0.125, 0.125), active: false, watchdogThaws: 0 },
    collapser: { durations: durations(0, 0, 0) },
    uploads: Object.assign(new Transfers(), { count: 6, bytes: 7000 }),
    downloads: Object.assign(new Transfers(), { count: 8, bytes: 9000 }),
    calls,
    places: { taken: 7 },
    connections: { open: 9, counts: { refused: 1, closed: 2 } },
    unread: { sum: 100, dropped: 3 },
    requests: { sum: 200, dropped: 4 },
    log: { output: { lost: 5 }, queue: { bytes: 300, counts: { sent: 6, refused: 7, dropped: 8 } } },
    cgroups: { all: () => [] },
  };
}

/** Requests to a server of its own. */
function serve(cgroups: DaemonTelemetry['cgroups'] = { all: () => [] }) {
  const app = Fastify();
  onTestFinished(() => app.close());
  const sources = { ...telemetry(), cgroups };
  prometheusExtension(sources).addRoutes?.(app, sources.calls);
  metricsRoutes(app, new MetricsReader());
  return (accept?: string) =>
    app.inject({ url: '/metrics', headers: accept === undefined ? {} : { accept } });
}

const get = (accept?: string) => serve()(accept);

/** The samples by name with labels. */
function samples(text: string): Record<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
}

describe('JSON', () => {
  test.each([
    undefined,
    '',
    '*/*',
    'application/json',
    'application/json, text/plain, */*',
    'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8',
    'image/png',
    'text/plain;version=1.0.0',
    'text/plain;q=0.5, application/json',
  ])('is sent for Accept: %s', async (accept) => {
    const response = await get(accept);
    expect(response.statusCode).toBe(200);
    expect(response.headers).toMatchObject({
      'content-type': 'application/json; charset=utf-8',
      vary: 'Accept',
    });
    expect(response.json()).toHaveProperty('cpu_used_pct');
  });
});

const FIGURES = {
  'envd_build_info{version="1.2.3",interface="0.6.13"}': 1,
  envd_processes_running: 2,
  envd_processes_started_total: 9,
  'envd_processes_ended_total{reason="exited"}': 3,
  'envd_processes_ended_total{reason="signaled"}': 2,
  'envd_processes_ended_total{reason="deadline"}': 1,
  'envd_processes_ended_total{reason="out of memory"}': 1,
  'envd_process_output_bytes_total{stream="stdout"}': 1000,
  'envd_process_output_bytes_total{stream="stderr"}': 20,
  'envd_process_output_bytes_total{stream="pty"}': 3,
  envd_record_failures_total: 2,
  envd_watches: 4,
  envd_watch_rescans_total: 5,
  envd_uploads_total: 6,
  envd_upload_bytes_total: 7000,
  envd_downloads_total: 8,
  envd_download_bytes_total: 9000,
  'envd_pause_operations_total{operation="freeze"}': 2,
  'envd_pause_operations_total{operation="fsfreeze"}': 1,
  'envd_pause_operations_total{operation="collapse"}': 0,
  'envd_pause_operation_seconds_total{operation="freeze"}': 0.5,
  'envd_pause_operation_seconds_total{operation="fsfreeze"}': 0.125,
  'envd_pause_operation_last_seconds{operation="freeze"}': 0.25,
  'envd_calls_total{operation="POST /a\\"b",code="not_found"}': 1,
  'envd_calls_total{operation="POST /a\\"b",code="200"}': 2,
  'envd_call_duration_seconds_bucket{le="0.001",operation="POST /a\\"b"}': 1,
  'envd_call_duration_seconds_bucket{le="0.25",operation="POST /a\\"b"}': 1,
  'envd_call_duration_seconds_bucket{le="0.5",operation="POST /a\\"b"}': 2,
  'envd_call_duration_seconds_bucket{le="+Inf",operation="POST /a\\"b"}': 3,
  'envd_call_duration_seconds_sum{operation="POST /a\\"b"}': 60.3005,
  'envd_call_duration_seconds_count{operation="POST /a\\"b"}': 3,
  envd_streams: 7,
  envd_connections: 9,
  'envd_connections_limited_total{action="refused"}': 1,
  'envd_connections_limited_total{action="closed"}': 2,
  envd_unread_bytes: 100,
  envd_readers_dropped_total: 3,
  envd_request_bytes: 200,
  envd_requests_dropped_total: 4,
  envd_log_lines_lost_total: 5,
  envd_collector_queue_bytes: 300,
  'envd_collector_lines_total{result="refused"}': 7,
  'envd_frozen{what="workload"}': 1,
  'envd_frozen{what="filesystem"}': 0,
  'envd_watchdog_thaws_total{what="workload"}': 1,
};

describe('text formats', () => {
  test.each([
    'text/plain',
    'text/*',
    'text/plain;version=0.0.4;q=0.5,*/*;q=0.1',
    'text/plain, application/json;q=0.5',
  ])('Prometheus is sent for Accept: %s', async (accept) => {
    const response = await get(accept);
    expect(response.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(samples(response.body)).toMatchObject(FIGURES);
    expect(response.body).toContain('# TYPE envd_processes_started_total counter\n');
    expect(response.body).not.toContain('# EOF');
  });

  test.each([
    'application/openmetrics-text',
    'application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2',
  ])('OpenMetrics is sent for Accept: %s', async (accept) => {
    const response = await get(accept);
    expect(response.headers['content-type']).toBe(
      'application/openmetrics-text; version=1.0.0; charset=utf-8',
    );
    expect(samples(response.body)).toMatchObject(FIGURES);
    expect(response.body).toContain('# TYPE envd_processes_started counter\n');
    expect(response.body).toMatch(/\n# EOF\n$/);
  });

  test('have the memory of the workload, as far as the kernel tells it', async () => {
    const [user, ptys] = [new Cgroup(join(scratch(), 'user')), new Cgroup(join(scratch(), 'ptys'))];
    for (const { path } of [user, ptys]) mkdirSync(path);
    writeFileSync(join(user.path, 'memory.current'), '4096\n');
    writeFileSync(
      join(user.path, 'memory.pressure'),
      'some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n',
    );
    writeFileSync(join(user.path, 'memory.events'), 'low 0\noom 1\noom_kill 3\n');
    writeFileSync(join(ptys.path, 'memory.current'), '8192\n');
    const text = (await serve({ all: () => [user, ptys] })('text/plain;version=0.0.4')).body;
    const told = Object.entries(samples(text)).filter(([name]) => name.startsWith('envd_workload_'));
    expect(Object.fromEntries(told)).toEqual({
      'envd_workload_memory_bytes{cgroup="user"}': 4096,
      'envd_workload_memory_bytes{cgroup="ptys"}': 8192,
      'envd_workload_memory_stalled_seconds_total{cgroup="user"}': 2.5,
      'envd_workload_memory_kills_total{cgroup="user"}': 3,
    });
  });

  test('have the memory, CPU time and event loop delay of the daemon', async () => {
    const ask = serve();
    await ask('text/plain');
    const deadline = performance.now() + 60;
    while (performance.now() < deadline);
    await new Promise(setImmediate);
    const figures = samples((await ask('text/plain')).body);
    const within = (name: string, low: number, high: number) => {
      expect(figures[name], name).toBeGreaterThanOrEqual(low);
      expect(figures[name], name).toBeLessThanOrEqual(high);
    };
    within('process_resident_memory_bytes', 10e6, 4e9);
    within('process_cpu_seconds_total', 0.06, 1e6);
    // Whole seconds, rounded.
    const started = Date.now() / 1000 - process.uptime();
    within('process_start_time_seconds', started - 2, started + 2);
    within('envd_heap_bytes{kind="used"}', 1e6, 4e9);
    within('envd_event_loop_delay_seconds{quantile="1"}', 0.055, 60);
    within('envd_event_loop_delay_seconds{quantile="0.5"}', 0, 1);
  });
});
