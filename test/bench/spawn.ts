/**
 * The cost of starting `/bin/true` and of noticing its end: our spawn beside child_process in one process, in turns,
 * with a small and a large heap, with and without a cgroup of its own; then through the RPCs of a real daemon.
 * Run: `npm run bench -- spawn`
 *
 * "Block" is the time that a start takes from all else on the event loop, from the call to the last callback: the
 * in which the loop did not wait for events (eventLoopUtilization), wall clock. CPU would not do: a fork waits for
 * the kernel without using any of the thread's own.
 */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type EventLoopUtilization, performance } from 'node:perf_hooks';
import { Quota } from '../../src/base/quota.ts';
import { findCgroupMount } from '../../src/daemon/linux/cgroups/cgroup-mounts.ts';
import { Cgroup } from '../../src/daemon/linux/cgroups/cgroup2.ts';
import { UserDatabase } from '../../src/daemon/linux/system/users.ts';
import { Guest } from '../../src/daemon/services/guest/guest.ts';
import { WorkloadCgroups } from '../../src/daemon/services/process/cgroups/cgroups.ts';
import type { StartRequest } from '../../src/daemon/services/process/lifecycle/start.ts';
import { ProcessTable } from '../../src/daemon/services/process/table.ts';
import { drain, startRequest } from '../support/clients/raw-client.ts';
import { testLanes } from '../support/services/lanes.ts';
import { DAEMON_FLAGS, startBenchDaemon } from './daemon.ts';
import { cpuOf, median, printTable, residentMib, show, takeTurns } from './figures.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 9);
const STARTS = 100;
const MIB = 1024 * 1024;

interface Cost {
  readonly blockMs: number;
  readonly totalMs: number;
}

type Contestant = 'ours' | 'ours, own cgroup' | 'ours, terminal' | 'child_process';

interface Report {
  readonly residentMib: number;
  readonly costs: Record<Contestant, Cost>;
}

/** Memory like that of a busy daemon: half in buffers, half in objects, every page written. */
function fill(mib: number): unknown[] {
  const buffers = Array.from({ length: mib / 2 }, (_, index) => Buffer.alloc(MIB, index + 1));
  const objects = Array.from({ length: mib * 5000 }, (_, index) => ({ index, name: `object ${index}` }));
  return [buffers, objects];
}

/** One start after the other, while the loop does nothing else. */
async function measure(start: () => Promise<void>): Promise<Cost> {
  const before: EventLoopUtilization = performance.eventLoopUtilization();
  const began = performance.now();
  for (let count = 0; count < STARTS; count++) await start();
  const totalMs = performance.now() - began;
  const { active } = performance.eventLoopUtilization(before);
  return { blockMs: active / STARTS, totalMs: totalMs / STARTS };
}

const REQUEST: StartRequest = {
  config: { command: '/bin/true', args: [], environment: {}, cwd: '/tmp' },
  user: new UserDatabase().lookup('root'),
  tag: null,
  terminal: null,
  stdin: true,
  startId: null,
};

function ours(cgroups: WorkloadCgroups, request = REQUEST): () => Promise<void> {
  const options = {
    path: '/usr/bin:/bin',
    historyBytes: MIB,
    startTimeout: 10,
    maxProcesses: 1024,
    unread: new Quota(64 * 1024 * 1024),
    lanes: testLanes,
  };
  const table = new ProcessTable(new Guest(new UserDatabase()), cgroups, options);
  return async () => {
    using feed = await table.start(request, null);
    while ((await feed.next()) !== null);
  };
}

async function viaChildProcess(): Promise<void> {
  const child = spawn('/bin/true', [], { cwd: '/tmp', env: { PATH: '/usr/bin:/bin' } });
  for (const stream of [child.stdout, child.stderr]) stream.resume();
  await once(child, 'close');
}

/** Runs in a process of its own, so that the heap has the intended size. */
async function inside(heapMib: number): Promise<Report> {
  const kept = fill(heapMib);
  globalThis.gc?.();
  const mount = findCgroupMount();
  const root = mount && `${mount}/envd-bench-${process.pid}`;
  const cgroups = WorkloadCgroups.create(root);
  const none = WorkloadCgroups.create(null);
  const contestants: Record<Contestant, () => Promise<void>> = {
    ours: ours(none),
    'ours, own cgroup': ours(cgroups),
    'ours, terminal': ours(none, { ...REQUEST, terminal: { cols: 80, rows: 24 } }),
    child_process: viaChildProcess,
  };
  const samples: Record<string, Cost[]> = {};
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [name, start] of Object.entries(contestants)) {
      const cost = await measure(start);
      // The first round warms up.
      if (round > 0) samples[name] = [...(samples[name] ?? []), cost];
    }
  }
  const costs = Object.entries(samples).map(([name, all]) => [
    name,
    { blockMs: median(all.map((cost) => cost.blockMs)), totalMs: median(all.map((cost) => cost.totalMs)) },
  ]);
  const resident = residentMib(process.pid);
  // Cgroups are removed a moment after their process.
  await new Promise((resolve) => setTimeout(resolve, 100));
  cgroups[Symbol.dispose]();
  if (root) new Cgroup(root).remove();
  if (kept.length === 0) throw new Error('memory is gone');
  return { residentMib: resident, costs: Object.fromEntries(costs) as Report['costs'] };
}

async function insideTable(): Promise<void> {
  const heaps: { heap: number; goals: Partial<Record<string, number>> }[] = [
    { heap: 0, goals: { 'ours, own cgroup': 0.25, 'ours, terminal': 0.2 } },
    { heap: 440, goals: { 'ours, own cgroup': 0.05, 'ours, terminal': 0.05 } },
  ];
  for (const { heap, goals } of heaps) {
    const child: ChildProcess = fork(import.meta.filename, [String(heap)], {
      execArgv: ['--expose-gc', ...DAEMON_FLAGS],
    });
    const [{ residentMib: resident, costs }] = (await once(child, 'message')) as [Report];
    const theirs = costs.child_process;
    const rows = Object.entries(costs).map(([name, { blockMs, totalMs }]) => {
      const ratio = blockMs / theirs.blockMs;
      const goal = goals[name];
      return {
        '/bin/true by': name,
        'block, ms': blockMs.toFixed(3),
        'until the end, ms': totalMs.toFixed(2),
        'block / child_process': ratio.toFixed(3),
        goal: goal === undefined ? '' : `${goal} ${ratio <= goal ? 'met' : 'MISSED'}`,
      };
    });
    printTable(`A start inside the daemon, ${resident.toFixed(0)} MiB resident`, rows);
    const leaf = costs['ours, own cgroup'].totalMs - costs.ours.totalMs;
    const share = leaf / costs['ours, own cgroup'].totalMs;
    console.log(
      `\nThe cgroup of each process costs ${show(leaf)} ms, ${(share * 100).toFixed(0)} % of a start.`,
    );
  }
}

async function rpcTable(): Promise<void> {
  await using daemon = await startBenchDaemon();
  const request = (codec: 'json' | 'binary') => startRequest({ process: { cmd: '/bin/true' } }, codec);
  const one = (codec: 'json' | 'binary') => async () => {
    const { tail } = await drain(daemon.port, request(codec));
    if (!tail.includes('exit status 0')) throw new Error(tail);
  };
  const timed = async (starts: number, atOnce: number, start: () => Promise<void>) => {
    const began = performance.now();
    for (let done = 0; done < starts; done += atOnce)
      await Promise.all(Array.from({ length: atOnce }, start));
    return (performance.now() - began) / starts;
  };
  const lines = [
    { name: 'one after the other', starts: 100, atOnce: 1 },
    { name: '16 at once', starts: 160, atOnce: 16 },
    { name: '50 at once', starts: 200, atOnce: 50 },
  ];
  const rows: Record<string, string>[] = [];
  for (const { name, starts, atOnce } of lines) {
    const ms = await takeTurns(
      {
        json: () => timed(starts, atOnce, one('json')),
        binary: () => timed(starts, atOnce, one('binary')),
        local: () => timed(starts, atOnce, viaChildProcess),
        cpu: async () => (await cpuOf(daemon.pid, () => timed(starts, atOnce, one('binary')))) / starts,
      },
      ROUNDS,
    );
    rows.push({
      '/bin/true': name,
      'RPC, JSON, ms each': ms.json.toFixed(2),
      'RPC, binary, ms each': ms.binary.toFixed(2),
      'CPU of the daemon, ms each': ms.cpu.toFixed(2),
      'child_process in the client, ms each': ms.local.toFixed(2),
    });
  }
  printTable('A start through the daemon, from the connection to the end of the stream', rows);
}

const [, , heap] = process.argv;
if (heap !== undefined) {
  const report = await inside(Number(heap));
  process.send?.(report);
  process.disconnect?.();
} else {
  await insideTable();
  await rpcTable();
}
