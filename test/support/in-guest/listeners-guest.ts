import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { readListeningSockets } from '../../../src/daemon/linux/network/listening-sockets.ts';
import { startDaemon, type TestDaemon } from '../programs/daemon.ts';
import { until } from '../until.ts';

// A guest with a stranger who listens at many ports: run in a network namespace whose `lo` is up. Prints its observations
// as JSON.
const ADDRESS = '127.0.0.2';
const STRANGER = 65534;
const OTHER = 65533;
const THIRD = 65532;
const MANY = 28_000;

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

async function listen(port: number, host = '127.0.0.1'): Promise<Server> {
  const server = createServer((socket) => socket.on('error', () => {}).end('hello'));
  server.listen({ port, host, ipv6Only: host === '::1' });
  await once(server, 'listening');
  return server;
}

/** Listens at the ports from `first` on as a user, in processes of 2,000 each, and accepts nothing. */
async function listenAs(
  uid: number,
  first: number,
  count: number,
  host = '127.0.0.1',
): Promise<{ end(): void }> {
  const program = `import os, socket, sys
os.setuid(${uid})
first, end, held = ${first}, ${first + count}, []
while end - first > 2000 and os.fork() == 0:
    first += 2000
for port in range(first, min(end, first + 2000)):
    one = socket.socket()
    one.bind(('${host}', port))
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

/** Turns of the event loop while the listening sockets are read once. */
async function turnsOfRead(): Promise<number> {
  let turns = 0;
  let isReading = true;
  const count = () => {
    turns++;
    if (isReading) setImmediate(count);
  };
  setImmediate(count);
  await readListeningSockets(ADDRESS);
  isReading = false;
  return turns;
}

// 28,000 of one user, below the ports that clients get, and one of another.
const stranger = await listenAs(STRANGER, 4000, MANY);
await until('the share of the stranger is used up', async () => (await portsOf(daemon)).length >= 512);
const other = await listen(3000);
await until('the port of the other is forwarded', () => isForwarded(daemon, 3000));
const strangers = (await portsOf(daemon)).filter(({ port }) => port >= 4000).length;
const turns = await turnsOfRead();

// So many that there are more than ports, all before the first of IPv6.
const elsewhere = [
  await listenAs(STRANGER, 4000, MANY, '127.0.0.3'),
  await listenAs(STRANGER, 4000, MANY, '127.0.0.4'),
];
const hidden = await listen(3001, '::1');
await until('the port behind all others is forwarded', () => isForwarded(daemon, 3001));
const found = await read(3001);
hidden.close();
for (const listeners of elsewhere) listeners.end();

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

// As many as a flag says, half of them of one user; a third has as many as each of the others.
await using small = await startDaemon({ args: [`--forward-address=${ADDRESS}`, '--max-forwards=6'] });
await daemon.stop();
/** How many ports of each user are forwarded. */
async function sharesOf(): Promise<number[]> {
  const byUser = Map.groupBy(await portsOf(small), ({ port: each }) => Math.floor(each / 100));
  return [31, 32, 33].map((hundred) => byUser.get(hundred)?.length ?? 0);
}
const children = [await listenAs(OTHER, 3100, 10), await listenAs(STRANGER, 3200, 10)];
const few = await until('six are forwarded', sharesOf, (shares) => `${shares}` === '3,3,0');
children.push(await listenAs(THIRD, 3300, 10));
const fair = await until('the third has his share', sharesOf, (shares) => `${shares}` === '2,2,2');
for (const child of children) child.end();
const seen = { strangers, turns, found, refused, answer, open, few, fair };
process.stdout.write(JSON.stringify({ ...seen, exitCode: await small.stop() }));
process.exit();
