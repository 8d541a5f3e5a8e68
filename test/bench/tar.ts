import { execFileSync, type StdioOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { sendAndWait } from '../support/clients/bench-files-client.ts';
import { startBenchDaemon } from './daemon.ts';
import { cpuMs, median, printTable, show, takeTurns } from './figures.ts';

/*
 * A directory of small files as one stream, each way: the daemon beside Debian's tar with cat between it and a socket
 * on the loopback device.
 */

const [files = '10000', bytes = '4096', rounds = '7'] = process.argv.slice(2);
const COUNT = Number(files);
const NOTHING = Buffer.alloc(0);

await using daemon = await startBenchDaemon();
const from = join(daemon.scratch, 'from');
const to = join(daemon.scratch, 'to');
mkdirSync(from);
const content = Buffer.alloc(Number(bytes), 'envd');
for (let index = 0; index < COUNT; index++) writeFileSync(join(from, `file-${index}`), content);
const archive = execFileSync('tar', ['-C', from, '--format=posix', '-cf', '-', '.'], { maxBuffer: 2 ** 31 });

/** CPU time in microseconds for each file, of each contestant. */
const costs = new Map<string, number[]>();

function noteCost(name: string, milliseconds: number): void {
  costs.set(name, [...(costs.get(name) ?? []), (milliseconds * 1000) / COUNT]);
}

/** Runs the command for one connection, given by `stdio`; `exchange` is the client. */
async function program(
  name: string,
  command: string,
  stdio: (socket: Socket) => StdioOptions,
  exchange: (port: number) => Promise<unknown>,
): Promise<void> {
  const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const ended = once(server, 'connection').then(async ([socket]: Socket[]) => {
    if (!socket) return;
    const child = spawn('bash', ['-c', `${command}; times >&2`], { stdio: stdio(socket) });
    socket.destroy();
    let times = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      times += text;
    });
    await once(child, 'close');
    noteCost(name, cpuOfChildren(times));
  });
  await Promise.all([exchange((server.address() as AddressInfo).port), ended]);
  server.close();
}

/** Milliseconds of user and system time in the second line of what `times` prints: `0m0.010s 0m0.531s`. */
function cpuOfChildren(times: string): number {
  const parts = Array.from(String(times.split('\n')[1]).matchAll(/(\d+)m([\d.]+)s/g));
  return parts.reduce(
    (sum, [, minutes, seconds]) => sum + Number(minutes) * 60_000 + Number(seconds) * 1000,
    0,
  );
}

async function byDaemon(name: string, exchange: () => Promise<unknown>): Promise<void> {
  const before = cpuMs(daemon.pid);
  await exchange();
  noteCost(name, cpuMs(daemon.pid) - before);
}

/** Sends a request, if any, and reads until the connection ends; returns the number of bytes. */
async function readAll(port: number, request: string): Promise<void> {
  let length = 0;
  const buffer = Buffer.allocUnsafe(2 ** 20);
  const callback = (count: number) => {
    length += count;
    return true;
  };
  const onread = { buffer, callback };
  const socket = connect({ host: '127.0.0.1', port, onread });
  if (request !== '') socket.write(request);
  await once(socket, 'close');
  if (length < COUNT * content.length) throw new Error(`only ${length} bytes`);
}

const query = (path: string, more = '') => `/files?path=${encodeURIComponent(path)}${more}`;
const GET = `GET ${query(from, '&format=tar')} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n`;
const POST = [`POST ${query(to)} HTTP/1.1`, 'host: bench', 'content-type: application/x-tar'];
const HEAD = Buffer.from([...POST, `content-length: ${archive.length}`, '\r\n'].join('\r\n'));

async function send(port: number, head: Buffer): Promise<void> {
  const answer = await sendAndWait(port, { head, piece: archive, size: archive.length, suffix: NOTHING });
  if (head.length > 0 && !answer.startsWith('HTTP/1.1 200')) throw new Error(answer);
}

/** Files a second. */
function timed(work: () => Promise<void>): () => Promise<number> {
  return async () => {
    rmSync(to, { recursive: true, force: true });
    mkdirSync(to);
    const started = performance.now();
    await work();
    const seconds = (performance.now() - started) / 1000;
    const unpacked = readdirSync(to).length;
    if (unpacked > 0 && unpacked !== COUNT) throw new Error(`${unpacked} files`);
    return COUNT / seconds;
  };
}

async function contest(
  title: string,
  contestants: Readonly<Record<'tar and cat' | 'envd', () => Promise<number>>>,
) {
  costs.clear();
  const figures = await takeTurns(contestants, Number(rounds));
  printTable(
    `${title}: ${COUNT} files of ${bytes} bytes`,
    Object.entries(figures).map(([name, value]) => ({
      '': name,
      'files/s': show(value),
      'of tar and cat': (value / figures['tar and cat']).toFixed(2),
      'CPU µs/file': show(median(costs.get(name) ?? [])),
    })),
  );
}

await contest('Packed', {
  'tar and cat': timed(() =>
    program(
      'tar and cat',
      `tar -C '${from}' --format=posix -cf - . | cat`,
      (socket) => ['ignore', socket, 'pipe'],
      (port) => readAll(port, ''),
    ),
  ),
  envd: timed(() => byDaemon('envd', () => readAll(daemon.port, GET))),
});
await contest('Unpacked', {
  'tar and cat': timed(() =>
    program(
      'tar and cat',
      `cat | tar -C '${to}' -xf -`,
      (socket) => [socket, 'ignore', 'pipe'],
      (port) => send(port, NOTHING),
    ),
  ),
  envd: timed(() => byDaemon('envd', () => send(daemon.port, HEAD))),
});
