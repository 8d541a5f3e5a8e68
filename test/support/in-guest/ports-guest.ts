import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { startDaemon } from '../programs/daemon.ts';
import { until } from '../until.ts';

// A guest with an address of its own: run in a network namespace with the address 10.77.0.2 at the default route. Prints
// its observations as JSON.
const ADDRESS = '10.77.0.2';
const VITE = fileURLToPath(new URL('../../../node_modules/vite/bin/vite.js', import.meta.url));
const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

await using daemon = await startDaemon({ args: ['--host=0.0.0.0'] });

interface Ports {
  readonly address: string | null;
  readonly ports: readonly {
    readonly port: number;
    readonly connections: number;
  }[];
}
const ports = async () => (await (await fetch(`${daemon.url}/ports`)).json()) as Ports;
const isForwarded = async (port: number) => (await ports()).ports.some((found) => found.port === port);

async function listen(
  port: number,
  host: string,
  serve: (socket: Socket) => void = () => {},
): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, serve);
  server.listen({ port, host, ipv6Only: host.includes(':') });
  await once(server, 'listening');
  return server;
}

/** The text that the port sends, or the code of the error. */
function ask(port: number, text: string, host = ADDRESS): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ port, host, allowHalfOpen: true }, () => socket.end(text));
    let answer = '';
    socket.on('data', (data) => {
      answer += data;
    });
    socket.on('end', () => resolve(answer));
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
  });
}

/** Answers when the client has ended. */
const echo = (socket: Socket) => {
  let text = '';
  socket.on('data', (data) => {
    text += data;
  });
  socket.on('end', () => socket.end(`you said ${text}`));
  socket.on('error', () => {});
};

// Both loopback addresses, and an end.
const four = await listen(3001, '127.0.0.1', echo);
await until('3001 is forwarded', () => isForwarded(3001));
const halfClosed = await ask(3001, 'hello');
await listen(3002, '::1', echo);
await until('3002 is forwarded', () => isForwarded(3002));
const six = await ask(3002, 'six');
four.close();
await until('3001 is gone', async () => !(await isForwarded(3001)));
const afterwards = await ask(3001, 'x');

// Resets, both ways.
const arrived = Promise.withResolvers<Socket>();
await listen(3003, '127.0.0.1', arrived.resolve);
await until('3003 is forwarded', () => isForwarded(3003));
const client = connect(3003, ADDRESS);
const seenByClient = new Promise<string>((resolve) =>
  client.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? '')),
);
(await arrived.promise).on('error', () => {}).resetAndDestroy();
const reset = [await seenByClient];
const second = Promise.withResolvers<Socket>();
await listen(3004, '127.0.0.1', second.resolve);
await until('3004 is forwarded', () => isForwarded(3004));
const leaving = connect(3004, ADDRESS).on('error', () => {});
const atServer = await second.promise;
const seenByServer = new Promise<string>((resolve) =>
  atServer.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? '')),
);
leaving.resetAndDestroy();
reset.push(await seenByServer);

// Ports that are others': of a server at all addresses, at the guest's own, the daemon's, and rpcbind's.
await listen(111, '127.0.0.1', echo);
await listen(3005, '0.0.0.0', echo);
await listen(3006, ADDRESS, (socket) => socket.end('mine'));
await listen(3006, '127.0.0.1', echo);
await listen(3007, '127.0.0.2', echo);
await listen(3008, '127.0.0.1', echo);
await until('3008 is forwarded', () => isForwarded(3008));
const others = (await ports()).ports.map(({ port }) => port);
const mine = await ask(3006, 'x');

// Programs of users.
const children: ChildProcess[] = [];
const python = ['-m', 'http.server', '--bind', '127.0.0.1', '3010'];
children.push(spawn('python3', python, { stdio: 'ignore', cwd: daemon.scratch }));
const bound = `require('node:http').createServer((_, r) => r.end('bound')).listen(3011, 'localhost')`;
children.push(spawn(process.execPath, ['-e', bound], { stdio: 'ignore' }));
// Vite's development server, which listens at localhost and has a WebSocket for its page.
writeFileSync(`${daemon.scratch}/index.html`, '<title>of Vite</title>');
const vite = ['--port', '3014', '--strictPort', '--logLevel', 'silent'];
const quiet = { stdio: 'ignore', cwd: daemon.scratch } as const;
children.push(spawn(process.execPath, [VITE, ...vite], quiet));
await until('all are forwarded', async () =>
  (await Promise.all([3010, 3011, 3014].map(isForwarded))).every(Boolean),
);
/** The page, and the first message of its WebSocket. */
async function visitVite(): Promise<readonly [boolean, string]> {
  const base = `http://${ADDRESS}:3014`;
  const page = await (await fetch(`${base}/`)).text();
  const script = await (await fetch(`${base}/@vite/client`)).text();
  const token = /wsToken = "([^"]+)"/.exec(script)?.[1] ?? '';
  const socket = new WebSocket(`ws://${ADDRESS}:3014/?token=${token}`, 'vite-hmr');
  const message = await new Promise<string>((resolve, reject) => {
    socket.onmessage = ({ data }) => resolve(String(data));
    socket.onerror = () => reject(new Error('the WebSocket failed'));
  });
  socket.close();
  return [page.includes('of Vite'), message];
}
const http = [
  (await fetch(`http://${ADDRESS}:3010/`)).status,
  await (await fetch(`http://${ADDRESS}:3011/`)).text(),
  ...(await visitVite()),
];
for (const child of children) child.kill();

// While frozen nothing changes; afterwards it goes on.
const freeze = await fetch(`${daemon.url}/freeze?maxWaitMs=2000`, { method: 'POST' });
await listen(3012, '127.0.0.1', echo);
await delay(1200);
const whileFrozen = await isForwarded(3012);
await fetch(`${daemon.url}/unfreeze`, { method: 'POST' });
await until('3012 is forwarded', () => isForwarded(3012));

// A process that opens and closes listeners all the time, and many listeners.
const storm = `const net = require('node:net'); let n = 0;
const next = () => { const s = net.createServer(); s.on('error', next); s.listen(0, '127.0.0.1', () => s.close(next)); };
for (let i = 0; i < 20; i++) next();`;
const stormy = spawn(process.execPath, ['-e', storm], { stdio: 'ignore' });
let answered = 0;
for (let calls = 0; calls < 200; calls++)
  answered += (await fetch(`${daemon.url}/health`)).status === 204 ? 1 : 0;
stormy.kill();
await once(stormy, 'exit');
const held: Server[] = [];
for (let port = 20_000; port < 21_500; port++) held.push(await listen(port, '127.0.0.1'));
await until('as many as one user may have are forwarded', async () => (await ports()).ports.length >= 512);
const many = (await ports()).ports.length;
for (const server of held) server.close();
await until('they are gone', async () => !(await ports()).ports.some(({ port }) => port >= 20_000));

// Connections beyond the limit.
const sockets: Socket[] = [];
let refused = 0;
for (let i = 0; i < 1010; i++) {
  const socket = connect(3008, ADDRESS);
  socket.on('error', () => refused++);
  sockets.push(socket);
}
const telemetry = async () =>
  (await fetch(`${daemon.url}/metrics`, { headers: { accept: 'text/plain' } })).text();
await until('ten are refused', () => refused >= 10);
const bounded = { refused, open: (await ports()).ports.find(({ port }) => port === 3008)?.connections };
const told = await telemetry();
const metrics = told.match(
  /^envd_forwarded_(ports|connections|connections_total\{outcome="refused"\}) \d+$/gm,
);
for (const socket of sockets) socket.destroy();
await until('all are closed', async () =>
  (await ports()).ports.every(({ connections }) => connections === 0),
);

// A connection whose listener has gone does not keep a stop from completing.
const left = await listen(3013, '127.0.0.1', echo);
await until('3013 is forwarded', () => isForwarded(3013));
const idle = connect(3013, ADDRESS).on('error', () => {});
await once(left, 'connection');
left.close();
await until('3013 is gone', async () => !(await isForwarded(3013)));
const exitCode = await daemon.stop();
idle.destroy();
const seen = { halfClosed, six, afterwards, reset, others, mine, http, many, bounded, metrics };
const log = daemon.log
  .filter(({ msg }) => msg === 'the forwarded localhost listeners have changed')
  .slice(0, 1);
process.stdout.write(
  JSON.stringify({ ...seen, freeze: freeze.status, whileFrozen, answered, exitCode, log }),
);
process.exit();
