import { strict as assert } from 'node:assert';
import { Code } from '@connectrpc/connect';
import { ListScope } from '../../../gen/process/process_pb.js';
import { section } from '../../suite/cases.ts';
import { JSON_BODY, jsonOf, refused, refusedRest, type TestedDaemon } from '../../suite/daemon.ts';
import { offered } from '../../suite/offered.ts';
import { sh } from '../../suite/running.ts';

const exec = (daemon: TestedDaemon, request: unknown) =>
  daemon.rest('POST', '/exec', { headers: JSON_BODY, body: JSON.stringify(request) });

const stop = (daemon: TestedDaemon, name: string | number, graceMs: number) =>
  daemon.rest('POST', `/processes/${name}/stop`, { headers: JSON_BODY, body: JSON.stringify({ graceMs }) });

/**
 * Gives a program more time, up to ten seconds, until `work` returns true: until it has got to what it is to do, which takes long
 * in a guest that has no time.
 */
async function inTime(leastMs: number, work: (timeoutMs: number) => Promise<boolean>): Promise<boolean> {
  for (let timeoutMs = leastMs; timeoutMs < 10_000; timeoutMs *= 2) if (await work(timeoutMs)) return true;
  return false;
}

/** The messages of an NDJSON stream that ends. */
async function linesOf(daemon: TestedDaemon, method: string, request: unknown) {
  const headers = { ...JSON_BODY, accept: 'application/x-ndjson' };
  const answer = await daemon.rest('POST', method, { headers, body: JSON.stringify(request) });
  assert.equal(answer.status, 200, String(answer.body));
  assert.equal(answer.headers['content-type'], 'application/x-ndjson');
  return String(answer.body)
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

export const OFFERED_EXTENSIONS = section('++', 'Extensions that the daemon names (docs/extensions.md)', {
  'POST /exec answers with output and end': offered('exec', async (daemon) => {
    const answer = jsonOf(await exec(daemon, sh('cat; echo err >&2; exit 3')), 200);
    assert.deepEqual(
      [answer.exitCode, answer.signal, answer.stdout, answer.stderr, answer.truncated],
      [3, null, '', 'err\n', false],
    );
    const { stdout } = jsonOf(await exec(daemon, { cmd: 'cat', cwd: '/', stdin: 'größe' }), 200);
    assert.equal(stdout, 'größe');
    refusedRest(await exec(daemon, { cmd: 'no-such-program', cwd: '/' }), 404);
    refusedRest(await exec(daemon, {}), 400);
  }),
  'POST /exec keeps to its limits': offered('exec', async (daemon) => {
    const hasWritten = await inTime(300, async (timeoutMs) => {
      const late = jsonOf(await exec(daemon, { ...sh('echo out; sleep 1000'), timeoutMs }), 200);
      assert.deepEqual([late.reason, late.signal], ['deadline', 'SIGKILL']);
      if (late.stdout !== '') assert.equal(late.stdout, 'out\n');
      return late.stdout !== '';
    });
    assert(hasWritten, 'what was written before the deadline is told');
    const much = jsonOf(await exec(daemon, { ...sh('printf "%01000d" 1'), maxOutputBytes: 10 }), 200);
    assert.deepEqual([much.truncated, much.stdoutBytes], [true, 1000]);
    assert.match(String(much.stdout), /^00000\n.*\n00001$/);
  }),
  'limits of one command are kept, or refused with a reason': offered('limits', async (daemon) => {
    const limits = { openFiles: 64 };
    assert.equal(jsonOf(await exec(daemon, { ...sh('ulimit -n'), limits }), 200).stdout, '64\n');
    const { ended } = await daemon.start({ process: sh('ulimit -n'), limits });
    assert.equal(String((await ended).stdout), '64\n');
    for (const bad of [{ tasks: 0 }, { memoryBytes: 2 ** 63 }, { openFiles: 'all' }, { memory: 1 }])
      refusedRest(await exec(daemon, { ...sh('true'), limits: bad }), 400);
    await refused(daemon.start({ process: sh('true'), limits: { tasks: 0 } }), Code.InvalidArgument);
    // A shell may try to fork again for many seconds.
    const areCounted = await inTime(1000, async (timeoutMs) => {
      const alone = await exec(daemon, { ...sh('(:)'), limits: { tasks: 1 }, timeoutMs });
      if (alone.status === 412) {
        refusedRest(alone, 412);
        return true;
      }
      const { refusedTasks = 0 } = jsonOf(alone, 200).usage as { refusedTasks?: number };
      return refusedTasks > 0;
    });
    assert(areCounted, 'refused tasks are counted');
  }),
  'output lasts, with the end, and parts of it are read': offered('keepOutput', async (daemon) => {
    const tag = `kept-${process.pid}`;
    const keepOutput = { bytes: 8n, seconds: 60n };
    const { ended } = await daemon.start({ process: sh('echo 0123456789; exit 3'), tag, keepOutput });
    await ended;
    const path = `/processes/${tag}/output`;
    assert.equal(String((await daemon.rest('GET', path, { query: { follow: 'true' } })).body), '3456789\n');
    const { end, streams, complete } = jsonOf(await daemon.rest('GET', `/processes/${tag}/result`), 200);
    assert.equal((end as { exitCode?: number }).exitCode, 3);
    assert.deepEqual((streams as { stdout?: object }).stdout, { droppedBytes: 3, bytes: 11 });
    assert.equal(complete, true);
    const part = await daemon.rest('GET', path, { headers: { range: 'bytes=4-5' } });
    assert.deepEqual([part.status, String(part.body)], [206, '45']);
    refusedRest(await daemon.rest('GET', path, { headers: { range: 'bytes=0-5' } }), 416);
    refusedRest(await daemon.rest('GET', `/processes/none-${tag}/result`), 404);
    await refused(daemon.start({ process: sh('true'), keepOutput: { seconds: 0n } }), Code.InvalidArgument);
  }),
  'streams as NDJSON': offered('ndjson', async (daemon) => {
    const lines = await linesOf(daemon, '/process.Process/Start', { process: sh('echo out; exit 3') });
    assert(lines[0].event.start.pid > 0);
    assert.deepEqual(lines[1], { event: { data: { stdout: 'b3V0Cg==' } } });
    assert.equal(lines.at(-1).event.end.exitCode, 3);
    const headers = { ...JSON_BODY, accept: 'application/x-ndjson' };
    const body = JSON.stringify({ process: { pid: 999_999_999 } });
    const refusal = await daemon.rest('POST', '/process.Process/Connect', { headers, body });
    assert.equal(jsonOf(refusal, 404).code, 'not_found');
  }),
  'List with usage, and of the whole guest': offered('usage', async (daemon) => {
    const { pid } = await daemon.start({ process: sh('sleep 1000') });
    const { processes } = await daemon.process.list({ usage: true });
    assert(processes.find((one) => one.pid === pid)?.usage, 'the process has its usage');
    const all = await daemon.process.list({ scope: ListScope.GUEST, afterPid: pid - 1 });
    const found = all.processes.find((one) => one.pid === pid);
    assert(
      found?.user && found.state && found.parent !== undefined,
      'the process has user, state and parent',
    );
  }),
  'GET /metrics with pressure': offered('pressure', async (daemon) => {
    const { pressure } = jsonOf(await daemon.rest('GET', '/metrics', { query: { pressure: 'true' } }), 200);
    assert.deepEqual(Object.keys(pressure as object), ['cpu', 'memory', 'io']);
  }),
  'GET /metrics/history has points of the last hour': offered('history', async (daemon) => {
    const { interval, points } = jsonOf(await daemon.rest('GET', '/metrics/history'), 200);
    assert.equal(interval, 10);
    assert(Array.isArray(points) && points.length <= 360, 'there are at most 360 points');
  }),
  'a stop answers when nothing is left': offered('stop', async (daemon) => {
    const running = await daemon.start({
      process: sh('trap \'\' TERM; setsid sleep 1000 & echo "child $!."; wait'),
    });
    await running.wrote('.');
    const child = Number(/child (\d+)/.exec(running.output)?.[1]);
    const answer = jsonOf(await stop(daemon, running.pid, 200), 200);
    assert.deepEqual([answer.pid, answer.killed, answer.signal], [running.pid, true, 'SIGKILL']);
    // A zombie does not run.
    const runs = `grep -q '^State:[[:space:]]*[RSDT]' /proc/${child}/status 2>/dev/null && echo yes || echo no`;
    assert.equal(await daemon.shell(runs), 'no');
    refusedRest(await stop(daemon, running.pid, 200), 404);
  }),
});
