/**
 * Bytes to a forwarded localhost listener beside a direct connection to it,
 * each way: throughput, and the CPU time of all processes. Client and server are Node's and not of the daemon; runs in a network namespace of its own, as root.
 * Run: `npm run bench -- ports [MIB] [ROUNDS]`
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { until } from '../support/until.ts';
import { startBenchDaemon } from './daemon.ts';
import { cpuMs, median, printTable, samplesOf, show } from './figures.ts';
import { GIVE, send, TAKE } from './ports-server.ts';

const IS_INSIDE = 'PORTS_BENCH_INSIDE';
const FORWARDED = '127.0.0.2';
/** Direct and forwarded. */
const WAYS = 2;
const [mib = 1024, rounds = 5] = process.argv.slice(2).map(Number);
const bytes = mib * 1024 * 1024;

interface Sample {
  readonly ms: number;
  readonly cpu: number;
  readonly daemon: number;
}

async function transfer(host: string, port: number, takes: boolean): Promise<void> {
  let got = 0;
  const buffer = Buffer.allocUnsafe(256 * 1024);
  const callback = (length: number) => {
    got += length;
    return true;
  };
  const socket = connect({ host, port, allowHalfOpen: true, onread: { buffer, callback } });
  socket.write(Buffer.of(takes ? TAKE : GIVE));
  if (takes) await send(socket, bytes);
  else socket.end();
  await once(socket, 'close');
  if (!takes && got !== bytes) throw new Error(`${got} bytes`);
}

async function measure(): Promise<void> {
  await using daemon = await startBenchDaemon([`--forward-address=${FORWARDED}`]);
  const program = fileURLToPath(new URL('ports-server.ts', import.meta.url));
  const server = spawn(process.execPath, [program, String(bytes)], { stdio: ['ignore', 'pipe', 'inherit'] });
  using _ = { [Symbol.dispose]: () => void server.kill() };
  const [line] = await once(server.stdout, 'data');
  const port = Number(line);
  await until('the port is forwarded', async () =>
    (await (await fetch(`${daemon.url}/ports`)).text()).includes(`"port":${port},`),
  );
  const pids = [process.pid, server.pid ?? 0, daemon.pid];
  const sample = (host: string, takes: boolean) => async () => {
    const before = pids.map(cpuMs);
    const began = performance.now();
    await transfer(host, port, takes);
    const ms = performance.now() - began;
    const spent = pids.map((pid, index) => cpuMs(pid) - (before[index] ?? 0));
    samples.push({
      ms,
      cpu: spent.reduce((sum, value) => sum + value),
      daemon: spent[2] ?? 0,
    });
    return samples.length - 1;
  };
  const samples: Sample[] = [];
  const contestants = {
    'to it, direct': sample('127.0.0.1', true),
    'to it, forwarded': sample(FORWARDED, true),
    'from it, direct': sample('127.0.0.1', false),
    'from it, forwarded': sample(FORWARDED, false),
  };
  const found = Object.entries(await samplesOf(contestants, rounds)).map(([name, indices]) => {
    const of = (key: keyof Sample) => median(indices.map((index) => samples[index]?.[key] ?? Number.NaN));
    return { name, ms: of('ms'), cpu: of('cpu'), daemon: of('daemon') };
  });
  printFound(found);
}

function printFound(found: readonly (Sample & { readonly name: string })[]): void {
  const gib = bytes / 2 ** 30;
  const rows = found.map(({ name, ms, cpu, daemon: own }, index) => {
    const direct = found[index - (index % WAYS)];
    return {
      bytes: name,
      'MiB/s': show(mib / (ms / 1000)),
      'CPU of all, ms/GiB': show(cpu / gib),
      "the daemon's": show(own / gib),
      'throughput / direct': ((direct?.ms ?? 0) / ms).toFixed(2),
      'CPU / direct': (cpu / (direct?.cpu ?? 0)).toFixed(2),
    };
  });
  printTable(`${mib} MiB, medians of ${rounds} rounds`, rows);
}

if (process.env[IS_INSIDE]) {
  await measure();
} else {
  const inside = ['--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh', process.execPath];
  const env = { ...process.env, [IS_INSIDE]: '1' };
  const { status } = spawnSync('unshare', [...inside, ...process.argv.slice(1)], { stdio: 'inherit', env });
  process.exitCode = status ?? 1;
}
