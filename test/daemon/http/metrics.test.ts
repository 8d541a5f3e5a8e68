import { existsSync, mkdirSync } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

async function scrape(daemon: TestDaemon): Promise<Record<string, number>> {
  const response = await fetch(`${daemon.url}/metrics`, { headers: { accept: 'text/plain' } });
  expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  const lines = (await response.text()).split('\n').filter((line) => /^[a-z]/.test(line));
  return Object.fromEntries(
    lines.map((line) => {
      const end = line.lastIndexOf(' ');
      return [line.slice(0, end), Number(line.slice(end))];
    }),
  );
}

test('the metrics count what clients have done', async () => {
  await using daemon = await startDaemon();
  const { process: rpc, filesystem } = connectTo(daemon.url);
  const bytes = Buffer.alloc(300_000, 'x');
  mkdirSync(`${daemon.scratch}/watched`);

  await transcribe(rpc.start({ process: { cmd: 'sh', args: ['-c', 'printf 12345; printf 123 >&2'] } }));
  await transcribe(rpc.start({ process: { cmd: 'sh', args: ['-c', 'kill -KILL $$'] } }));
  // Only the daemon's own deadline passes, after the start.
  const options = { headers: { 'connect-timeout-ms': '2000' } };
  const late = transcribe(rpc.start({ process: { cmd: 'sleep', args: ['100'] } }, options));
  expect(ConnectError.from(await late.catch((error: unknown) => error)).code).toBe(Code.DeadlineExceeded);
  const { watcherId } = await filesystem.createWatcher({ path: `${daemon.scratch}/watched` });
  await expect.poll(async () => (await rpc.list({})).processes.length).toBe(0);
  const running = transcribe(rpc.start({ process: { cmd: 'sleep', args: ['100'] }, tag: 'runs' }));
  // If anything fails, the daemon ends before it.
  running.catch(() => {});
  await expect.poll(async () => (await rpc.list({})).processes.length).toBe(1);

  const form = new FormData();
  for (const name of ['a', 'b']) form.append('file', new Blob([bytes]), `${daemon.scratch}/${name}`);
  const headers = { 'content-type': 'application/octet-stream' };
  const url = `${daemon.url}/files?path=${daemon.scratch}`;
  expect((await fetch(`${url}/c`, { method: 'POST', headers, body: bytes })).status).toBe(200);
  expect((await fetch(`${daemon.url}/files`, { method: 'POST', body: form })).status).toBe(200);
  expect(existsSync(`${daemon.scratch}/b`)).toBe(true);
  await (await fetch(`${url}/c`, { headers: { 'accept-encoding': 'identity' } })).arrayBuffer();
  await fetch(`${url}/missing`);

  await fetch(`${daemon.url}/collapse`, { method: 'POST' });
  await fetch(`${daemon.url}/freeze?maxWaitMs=1000`, { method: 'POST' });
  const init = await fetch(`${daemon.url}/init`, { method: 'POST' });
  expect(init.status).toBe(204);

  const figures = await scrape(daemon);
  expect(figures['envd_calls_total{operation="POST /process.Process/Start",code="200"}']).toBe(2);
  expect(figures['envd_calls_total{operation="GET /files",code="404"}']).toBe(1);
  expect(figures['envd_call_duration_seconds_bucket{le="+Inf",operation="GET /files"}']).toBe(2);
  expect(figures.process_open_fds).toBeGreaterThan(10);
  if (daemon.cgroupRoot) expect(figures['envd_workload_memory_kills_total{cgroup="user"}'] ?? 0).toBe(0);
  expect(figures).toMatchObject({
    envd_processes_running: 1,
    envd_processes_started_total: 4,
    'envd_processes_ended_total{reason="exited"}': 1,
    'envd_processes_ended_total{reason="signaled"}': 1,
    'envd_processes_ended_total{reason="deadline"}': 1,
    'envd_process_output_bytes_total{stream="stdout"}': 5,
    'envd_process_output_bytes_total{stream="stderr"}': 3,
    envd_watches: 1,
    envd_watch_rescans_total: 0,
    envd_uploads_total: 3,
    envd_upload_bytes_total: 3 * bytes.length,
    envd_downloads_total: 1,
    'envd_pause_operations_total{operation="freeze"}': 1,
    'envd_pause_operations_total{operation="collapse"}': 1,
    'envd_pause_operations_total{operation="fsfreeze"}': 0,
  });
  const sent = figures.envd_download_bytes_total ?? 0;
  expect(sent).toBeGreaterThan(bytes.length);
  expect(sent).toBeLessThan(bytes.length + 2000);
  expect(figures['envd_pause_operation_last_seconds{operation="collapse"}']).toBeGreaterThan(0);

  await filesystem.removeWatcher({ watcherId });
  await rpc.sendSignal({ process: { selector: { case: 'tag', value: 'runs' } }, signal: 9 });
  await running;
  await expect.poll(() => scrape(daemon)).toMatchObject({ envd_processes_running: 0, envd_watches: 0 });
});
