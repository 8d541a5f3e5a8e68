/**
 * What looking for localhost listeners costs a daemon that nobody calls: its CPU beside that of one that does not look, at the
 * same time, with no listener and with SOCKETS of them; and how soon one is seen and its end noticed. In a network namespace of
 * its own, as root.
 * Run: `npm run bench -- ports-idle [SOCKETS] [SECONDS] [ROUNDS]`
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { until } from '../support/until.ts';
import { startBenchDaemon } from './daemon.ts';
import { cpuMs, median, printTable, show } from './figures.ts';

const IS_INSIDE = 'PORTS_IDLE_BENCH_INSIDE';
const [sockets = 1000, seconds = 10, rounds = 3] = process.argv.slice(2).map(Number);
const FORWARDED = '127.0.0.2';
/** Until both have collected their garbage of the start. */
const WARM_UP_MS = 10_000;

async function listen(): Promise<Server> {
  const server = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

/** Milliseconds until a new listener can be connected to at the guest's address, and until its end is noticed. */
async function latency(): Promise<[seen: number, gone: number]> {
  const server = await listen();
  const { port } = server.address() as AddressInfo;
  const since = async (wanted: boolean) => {
    const began = performance.now();
    await until('it is so', async () => (await accepts(port)) === wanted);
    return performance.now() - began;
  };
  const seen = await since(true);
  server.close();
  return [seen, await since(false)];
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, FORWARDED).on('error', () => resolve(false));
    socket.once('connect', () => {
      socket.resetAndDestroy();
      resolve(true);
    });
  });
}

async function measure(): Promise<void> {
  await using looking = await startBenchDaemon([`--forward-address=${FORWARDED}`]);
  await using other = await startBenchDaemon(['--forward-address=off']);
  const pids = [looking.pid, other.pid];
  const forwarded = async () =>
    ((await (await fetch(`${looking.url}/ports`)).json()) as { ports: unknown[] }).ports.length;
  const rows: Record<string, string>[] = [];
  const measureWith = async (held: readonly Server[]) => {
    // With the other daemon's own; half of all may be one user's.
    await until('they are forwarded', forwarded, (count) => count === Math.min(held.length + 1, 512));
    await delay(WARM_UP_MS);
    const shares: number[][] = [];
    for (let round = 0; round < rounds; round++) {
      const before = pids.map(cpuMs);
      const began = performance.now();
      await delay(seconds * 1000);
      const ms = performance.now() - began;
      shares.push(pids.map((pid, index) => ((cpuMs(pid) - (before[index] ?? 0)) / ms) * 100));
    }
    const of = (value: (looks: number, idles: number) => number) =>
      `${median(shares.map(([looks = 0, idles = 0]) => value(looks, idles))).toFixed(3)} %`;
    rows.push({
      listeners: String(held.length),
      'one that looks': of((looks) => looks),
      'one that does not': of((_, idles) => idles),
      'the looks': of((looks, idles) => looks - idles),
    });
  };
  const latencies: [number, number][] = [];
  while (latencies.length < 20) latencies.push(await latency());
  await measureWith([]);
  const held: Server[] = [];
  while (held.length < sockets) held.push(await listen());
  await measureWith(held);
  for (const server of held) server.close();
  const times = (['seen after', 'gone after'] as const).map((what, index) => {
    const all = latencies.map((each) => each[index] ?? 0);
    return { listener: what, median: `${show(median(all))} ms`, longest: `${show(Math.max(...all))} ms` };
  });
  printTable(`${latencies.length} listeners, one after the other`, times);
  printTable(`CPU of an idle daemon, of a core, medians of ${rounds} times ${seconds} s`, rows);
}

if (process.env[IS_INSIDE]) {
  await measure();
} else {
  const script = 'ulimit -n 8192 && ip link set lo up && exec "$@"';
  const inside = ['--net', 'sh', '-c', script, 'sh', process.execPath];
  const env = { ...process.env, [IS_INSIDE]: '1' };
  const { status } = spawnSync('unshare', [...inside, ...process.argv.slice(1)], { stdio: 'inherit', env });
  process.exitCode = status ?? 1;
}
