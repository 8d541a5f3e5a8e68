import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { startDaemon, type TestDaemon } from './daemon.ts';
import { until } from './until.ts';

// A guest with a stranger who listens at many ports: run in a network namespace whose `lo` is up. Prints its observations
// as JSON.
const ADDRESS = '127.0.0.2';
const STRANGER = 65534;
const OTHER = 65533;

interface Port {
  readonly port: number;
  readonly connections: number;
}

async function portsOf(daemon: TestDaemon): Promise<readonly Port[]> {
  const { ports } = (await (await fetch(`${daemon.url}/ports`)).json()) as {
    readonly ports: readonly Port[];
  };
  return ports;
}

const isForwarded = async (daemon: TestDaemon, wanted: number) =>
  (await portsOf(daemon)).some(({ port }) => port === wanted);

async function listen(port: number): Promise<Server> {
  const server = createServer((socket) => socket.on('error', () => {}).end('hello'));
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

/** Listens at the ports from `first` on as a user, in processes of 2,000 each, and accepts nothing. */
async function listenAs(uid: number, first: number, count: number): Promise<{ end(): void }> {
  const program = `import os, socket, sys
os.setuid(${uid})
first, end, held = ${first}, ${first + count}, []
while end - first > 2000 and os.fork() == 0:
    first += 2000
for port in range(first, min(end, first + 2000)):
    one = socket.socket()
    one.bind(('127.0.0.1', port))
    one.listen(2000)
    held.append(one)
print('ready', flush=True)
sys.stdin.read()`;
  const child = spawn('python3', ['-c', program], { stdio: ['pipe', 'pipe', 'inherit'] });
  let ready = 0;
  createInterface(child.stdout).on('line', () => ready++);
  await until('all listen', () => ready === Math.ceil(count / 2000));
  // They end with their input.
  return { end: () => child.stdin.end() };
}

/** What the port sends, or the code of the error. */
function read(port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, ADDRESS);
    let text = '';
    socket.on('data', (data) => {
      text += data;
    });
    socket.on('end', () => resolve(text));
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
  });
}

await using daemon = await startDaemon({ args: [`--forward-address=${ADDRESS}`] });

// 28,000 of one user, below the ports that clients get, and one of another.
const stranger = await listenAs(STRANGER, 4000, 28_000);
await until('the share of the stranger is used up', async () => (await portsOf(daemon)).length >= 512);
const other = await listen(3000);
await until('the port of the other is forwarded', () => isForwarded(daemon, 3000));
const strangers = (await portsOf(daemon)).filter(({ port }) => port >= 4000).length;
let slowest = 0;
for (let calls = 0; calls < 300; calls++) {
  const began = performance.now();
  await fetch(`${daemon.url}/health`);
  slowest = Math.max(slowest, performance.now() - began);
}

// All the connections that one user's listeners may have.
const port = (await portsOf(daemon)).at(-1)?.port ?? 0;
const held: Socket[] = [];
let refused = 0;
for (let count = 0; count < 1010; count++) {
  held.push(connect(port, ADDRESS).on('error', () => refused++));
}
await until('ten are refused', () => refused >= 10);
const answer = await read(3000);
const open = (await portsOf(daemon)).find((found) => found.port === port)?.connections;
for (const socket of held) socket.destroy();
stranger.end();
await until('they are gone', async () => (await portsOf(daemon)).every(({ port: each }) => each === 3000));
other.close();

// As many as a flag says, of one user half of what the others leave.
await using small = await startDaemon({ args: [`--forward-address=${ADDRESS}`, '--max-forwards=6'] });
await daemon.stop();
const both = [await listenAs(STRANGER, 3200, 10)];
await until('half is used', async () => (await portsOf(small)).length === 3);
both.push(await listenAs(OTHER, 3100, 10));
await until('two more are forwarded', async () => (await portsOf(small)).length === 5);
const shares = Map.groupBy(await portsOf(small), ({ port: each }) => (each < 3200 ? OTHER : STRANGER));
for (const child of both) child.end();
const few = [shares.get(OTHER)?.length, shares.get(STRANGER)?.length];
process.stdout.write(
  JSON.stringify({ strangers, slowest, refused, answer, open, few, exitCode: await small.stop() }),
);
process.exit();
