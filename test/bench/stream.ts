/**
 * What it costs the server to stream events to one client, in CPU: our path, a plain handler of connect-node and a
 * bare socket, all in one process with the daemon's flags, read by raw sockets in another, in turns. Then the whole
 * way, from a program through the daemon to a client, beside the same bytes through a bare pipe.
 * Run: `npm run bench -- stream`
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { drain, startRequest } from '../support/clients/raw-client.ts';
import { startBenchDaemon } from './daemon.ts';
import { printTable, residentMib, show, takeTurns } from './figures.ts';
import { Contest, type Load } from './stream-contest.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 7);
const PIPED_BYTES = 512 * 1024 * 1024;

/** `goal`: share of the plain handler's CPU time. */
const LOADS: readonly (Load & { readonly goal: number })[] = [
  { name: '20,000 of 32 KiB', size: 32 * 1024, count: 20_000, goal: 0.3 },
  { name: '300,000 of 100 B', size: 100, count: 300_000, goal: 0.15 },
];

async function handlers(): Promise<void> {
  using contest = await Contest.open();
  const rows: Record<string, string>[] = [];
  for (const load of LOADS) {
    for (const codec of ['binary', 'json'] as const) {
      let resident = 0;
      const cpu = await takeTurns(
        {
          ours: async () => {
            const result = await contest.stream('ours', load, codec);
            resident = residentMib(contest.pid);
            return result;
          },
          plain: () => contest.stream('plain', load, codec),
          bare: () => contest.bare(load),
        },
        ROUNDS,
      );
      const ratio = cpu.ours / cpu.plain;
      rows.push({
        events: load.name,
        codec,
        'ours, ms': show(cpu.ours),
        'connect-node, ms': show(cpu.plain),
        'bare socket, ms': show(cpu.bare),
        'ours / connect-node': ratio.toFixed(3),
        goal: `${load.goal} ${ratio <= load.goal ? 'met' : 'MISSED'}`,
        'µs an event': ((cpu.ours * 1000) / load.count).toFixed(2),
        'resident, MiB': show(resident),
      });
    }
  }
  printTable(`CPU of the server, medians of ${ROUNDS} rounds`, rows);
}

async function timed(work: () => Promise<void>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

async function wholeWay(): Promise<void> {
  await using daemon = await startBenchDaemon();
  const config = { cmd: 'head', args: ['-c', String(PIPED_BYTES), '/dev/zero'] };
  const throughDaemon = (codec: 'json' | 'binary') => async () => {
    const { bytes, tail } = await drain(daemon.port, startRequest({ process: config }, codec));
    if (bytes < PIPED_BYTES || !tail.includes('exit status 0')) throw new Error(`${bytes} bytes: ${tail}`);
  };
  const throughPipe = async () => {
    const child = spawn('sh', ['-c', `head -c ${PIPED_BYTES} /dev/zero | cat > /dev/null`]);
    const [code] = await once(child, 'exit');
    if (code !== 0) throw new Error(`exit status ${code}`);
  };
  const ms = await takeTurns(
    {
      'daemon, binary': () => timed(throughDaemon('binary')),
      'daemon, JSON': () => timed(throughDaemon('json')),
      'head | cat': () => timed(throughPipe),
    },
    ROUNDS,
  );
  const rows = Object.entries(ms).map(([name, value]) => ({
    '512 MiB of a program through': name,
    'MiB/s': show(512 / (value / 1000)),
    'of a bare pipe': (ms['head | cat'] / value).toFixed(2),
  }));
  printTable('The whole way, wall clock', rows);
}

await handlers();
await wholeWay();
