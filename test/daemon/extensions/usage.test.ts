import { statfsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ListScope } from '../../../src/gen/process/process_pb.js';
import { connectTo, listGuest, transcribe } from '../../support/clients/clients.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* What runs, and what it uses: List, /metrics with pressure, and a stream of metrics. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

const MIB = 1024 * 1024;
/** Source: statfs(2). */
const TMPFS_MAGIC = 0x01021994;
/** Holds 32 MiB, has written 8 MiB to a file, has used CPU, and has a child. */
const BUSY = `
import os, subprocess, sys
held = b"a" * (32 << 20)
with open(sys.argv[1], "wb") as file:
    file.write(held[:8 << 20])
    os.fsync(file.fileno())
sum(range(2000000))
child = subprocess.Popen(["sleep", "1000"])
# The kernel tells that the program is there before it has arguments.
while not open(f"/proc/{child.pid}/cmdline").read(): pass
print("ready", child.pid, flush=True)
sys.stdin.read()
child.kill()
`;

describe.each(['json', 'binary'] as const)('List in %s', (codec) => {
  /** Starts it, and looks once it has done all that. */
  async function beside(look: (pid: number, child: number) => Promise<void>): Promise<void> {
    const { process } = connectTo(daemon.url, codec);
    const started = process.start({
      process: { cmd: 'python3', args: ['-c', BUSY, `${daemon.scratch}/written-${codec}`] },
      tag: `busy-${codec}`,
    });
    await transcribe(started, async ({ case: kind, value }, { pid }) => {
      if (kind !== 'data') return;
      const child = Number(/ready (\d+)/.exec(String(Buffer.from(value.output.value ?? [])))?.[1]);
      await look(pid, child);
      await process.closeStdin({ process: { selector: { case: 'pid', value: pid } } });
    });
  }

  test('tells on request what each process uses, with all below it', () =>
    beside(async (pid) => {
      const { process } = connectTo(daemon.url, codec);
      const [plain] = (await process.list({})).processes;
      expect(plain).toMatchObject({ pid, tag: `busy-${codec}`, config: { cmd: 'python3' } });
      expect([plain?.usage, plain?.parent]).toEqual([undefined, undefined]);
      const [info] = (await process.list({ usage: true })).processes;
      expect(info).toMatchObject({ pid, tag: `busy-${codec}`, config: { cmd: 'python3' } });
      expect(Number(info?.usage?.userMicros)).toBeGreaterThan(10_000);
      // The kernel counts what goes to a disk.
      if (statfsSync(daemon.scratch).type !== TMPFS_MAGIC)
        expect(info?.usage?.writtenBytes).toBeGreaterThanOrEqual(BigInt(8 * MIB));
      if (daemon.cgroupRoot) expect(info?.usage?.tasks).toBe(2);
      const { body } = await verbose();
      if (!body.abilities.memoryAccounting?.available) return;
      expect(info?.usage?.memoryBytes).toBeGreaterThan(BigInt(32 * MIB));
    }));

  test('tells on request of every process of the guest', () =>
    beside(async (pid, child) => {
      const processes = await listGuest(connectTo(daemon.url, codec), true);
      const found = (one: number) => processes.find((info) => info.pid === one);
      expect(processes.map((info) => info.pid)).toEqual(
        processes.map((info) => info.pid).sort((a, b) => a - b),
      );
      expect(found(pid)).toMatchObject({
        tag: `busy-${codec}`,
        config: {
          cmd: expect.stringContaining('python3'),
          args: ['-c', expect.stringContaining('held'), expect.any(String)],
        },
      });
      expect(found(pid)?.usage?.memoryBytes).toBeGreaterThan(BigInt(32 * MIB));
      expect(found(child)).toMatchObject({
        parent: pid,
        state: expect.stringMatching(/^[DRS]$/),
        config: { cmd: 'sleep', args: ['1000'] },
        usage: { tasks: 1 },
      });
      expect(found(child)?.tag).toBeUndefined();
      expect(found(daemon.pid)?.user).toBe(found(child)?.user);
    }));
});

test('a daemon without cgroups tells of each process alone', async () => {
  await using without = await startDaemon({ args: ['--no-cgroups'] });
  const { process } = connectTo(without.url);
  const [first] = [process.start({ process: { cmd: 'sleep', args: ['1000'] } })[Symbol.asyncIterator]()];
  await first?.next();
  const [info] = (await process.list({ usage: true })).processes;
  expect(info?.usage).toMatchObject({ tasks: 1, readBytes: expect.any(BigInt) });
  expect(info?.usage?.memoryBytes).toBeGreaterThan(0n);
});

test('what is beyond one answer comes with the next ones', async () => {
  needs('root');
  const { process } = connectTo(daemon.url);
  const crowd = 'for n in $(seq 1100); do sleep 1000 & done; echo ready; wait';
  const started = process.start({ process: { cmd: 'sh', args: ['-c', crowd] } });
  const pids = new Set<number>();
  await transcribe(started, async ({ case: kind }, { pid }) => {
    if (kind !== 'data') return;
    let [afterPid, answers] = [0, 0];
    for (let truncated = true; truncated; answers++) {
      const answer = await process.list({ scope: ListScope.GUEST, afterPid });
      expect(answer.processes.length).toBeLessThanOrEqual(512);
      truncated = answer.truncated;
      afterPid = answer.processes.at(-1)?.pid ?? 0;
      for (const info of answer.processes) if (info.parent === pid) pids.add(info.pid);
    }
    expect(answers).toBeGreaterThan(2);
    await process.sendSignal({ process: { selector: { case: 'pid', value: pid } }, signal: 9, scope: 1 });
  });
  expect(pids.size).toBe(1100);
});

type Report = { readonly abilities: Readonly<Record<string, { readonly available: boolean }>> };
const verbose = async () => ({
  body: (await (await fetch(`${daemon.url}/health?verbose`)).json()) as Report,
});

describe('/metrics', () => {
  const STALL = {
    avg10: expect.any(Number),
    avg60: expect.any(Number),
    avg300: expect.any(Number),
    total_us: expect.any(Number),
  };

  test('tells the pressure on request only', async () => {
    const plain = (await (await fetch(`${daemon.url}/metrics`)).json()) as object;
    expect(plain).not.toHaveProperty('pressure');
    const asked = await (await fetch(`${daemon.url}/metrics?pressure=true`)).json();
    const { pressure, ...others } = asked as { readonly pressure: unknown };
    expect(Object.keys(others)).toEqual(Object.keys(plain));
    if (!(await verbose()).body.abilities.pressure?.available) return;
    expect(pressure).toMatchObject({
      cpu: { some: STALL },
      memory: { some: STALL, full: STALL },
      io: { some: STALL, full: STALL },
    });
    const text = await fetch(`${daemon.url}/metrics?pressure=true`, {
      headers: { accept: 'text/plain; version=0.0.4' },
    });
    expect(await text.text()).toContain('# HELP');
    expect((await fetch(`${daemon.url}/metrics?pressure=5`)).status).toBe(400);
  });

  test.each([
    ['*/*', 'application/x-ndjson', /^\{/],
    ['text/event-stream', 'text/event-stream', /^data: \{/],
  ])('as a stream for %s', async (accept, type, form) => {
    const response = await fetch(`${daemon.url}/metrics/stream?interval=1`, { headers: { accept } });
    expect([response.status, response.headers.get('content-type')]).toEqual([200, type]);
    expect(response.headers.get('cache-control')).toBe('no-store');
    if (!response.body) throw new Error('no body');
    const samples = [];
    for await (const line of createInterface(Readable.fromWeb(response.body))) {
      if (line === '') continue;
      expect(line).toMatch(form);
      samples.push(JSON.parse(line.slice(line.indexOf('{'))));
      if (samples.length === 2) break;
    }
    const [first, second] = samples;
    expect(second.ts - first.ts).toBeGreaterThanOrEqual(1);
    expect(second).toMatchObject({ cpu_count: expect.any(Number), pressure: { cpu: expect.any(Object) } });
  });

  test('a stream has an interval in whole seconds, and a head', async () => {
    for (const interval of ['0', '-1', '0.5', '3601', 'x'])
      expect((await fetch(`${daemon.url}/metrics/stream?interval=${interval}`)).status).toBe(400);
    const head = await fetch(`${daemon.url}/metrics/stream`, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-type')]).toEqual([200, 'application/x-ndjson']);
  });

  test('the history has the first point after ten seconds', async () => {
    // An interval of the daemon passes.
    const history = await until(
      'a point is there',
      async () =>
        (await (await fetch(`${daemon.url}/metrics/history`)).json()) as { points: Record<string, number>[] },
      ({ points }) => points.length > 0,
    );
    expect(history).toEqual({ interval: 10, points: expect.any(Array) });
    const [point = {}] = history.points;
    expect(Math.abs(Number(point.ts) - Date.now() / 1000)).toBeLessThan(60);
    for (const name of ['mem_used', 'disk_used', 'tasks'])
      expect([name, Number(point[name]) > 0]).toEqual([name, true]);
    expect(point.cpu_used_pct).toBeLessThanOrEqual(100);
  });

  test('a stream ends when the daemon stops', async () => {
    await using stopped = await startDaemon();
    const response = await fetch(`${stopped.url}/metrics/stream`);
    const ended = response.text();
    expect(await stopped.stop()).toBe(0);
    expect(await ended).toMatch(/^(\{.*\}\n)*$/);
    await until('it has ended', () => true);
  });
});
