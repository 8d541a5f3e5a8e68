import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, transcribe } from '../support/clients/clients.ts';
import { startDaemon, type TestDaemon } from '../support/programs/daemon.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';

let gateway: TestGateway;
let one: TestDaemon;
let two: TestDaemon;

beforeAll(async () => {
  [gateway, one, two] = await Promise.all([startGateway(), startDaemon(), startDaemon()]);
  await gateway.register('one', one.port);
  await gateway.register('two', two.port);
});

afterAll(async () => {
  for (const each of [gateway, one, two]) await each[Symbol.asyncDispose]();
});

const files = (path: string) => `${gateway.url}/files?path=${encodeURIComponent(path)}`;

async function upload(id: string, path: string, body: string | Buffer): Promise<Response> {
  const headers = { ...toSandbox(id), 'content-type': 'application/octet-stream' };
  return fetch(files(path), { method: 'POST', headers, body, duplex: 'half' } as RequestInit);
}

test('the header decides which sandbox a request reaches', async () => {
  for (const [id, daemon] of [
    ['one', one],
    ['two', two],
  ] as const) {
    const path = join(daemon.scratch, 'who');
    expect((await upload(id, path, id)).status).toBe(200);
    const response = await fetch(files(path), { headers: toSandbox(id, 49983) });
    expect(await response.text()).toBe(id);
    const other = await fetch(files(path), { headers: toSandbox(id === 'one' ? 'two' : 'one') });
    // Both daemons see the same files: their logs tell which one has served a request.
    expect(other.status).toBe(200);
    await other.body?.cancel();
    const hasLogged = () => daemon.log.some(({ operation }) => operation === 'POST /files');
    await expect.poll(hasLogged).toBe(true);
  }
});

test('unary calls, streams and errors of a daemon are forwarded unchanged', async () => {
  const clients = connectTo(gateway.url);
  const headers = toSandbox('one');
  const script = 'for i in 1 2 3; do echo $i; done; echo bad >&2; exit 3';
  const seen = await transcribe(
    clients.process.start({ process: { cmd: 'sh', args: ['-c', script] } }, { headers }),
  );
  expect(seen.stdout.toString()).toBe('1\n2\n3\n');
  expect(seen.stderr.toString()).toBe('bad\n');
  expect(seen.end?.exitCode).toBe(3);
  const { processes } = await clients.process.list({}, { headers });
  expect(processes).toEqual([]);
  await expect(clients.filesystem.stat({ path: '/no/such' }, { headers })).rejects.toThrow(/not_found/);
});

test('a stream is forwarded while it is being written', async () => {
  const clients = connectTo(gateway.url);
  const headers = toSandbox('one');
  const stream = clients.process.start(
    { process: { cmd: 'sh', args: ['-c', 'echo first; read x; echo $x'] } },
    { headers },
  );
  const seen = await transcribe(stream, async (event, { pid }) => {
    if (event.case !== 'data' || event.value.output.case !== 'stdout') return;
    if (Buffer.from(event.value.output.value).toString() !== 'first\n') return;
    const process = { selector: { case: 'pid', value: pid } } as const;
    const value = new TextEncoder().encode('second\n');
    await clients.process.sendInput({ process, input: { input: { case: 'stdin', value } } }, { headers });
  });
  expect(seen.stdout.toString()).toBe('first\nsecond\n');
});

test('a stream may be silent for longer than the idle timeout of the connection pool', async () => {
  const { process } = connectTo(gateway.url);
  // A little longer than the idle timeout.
  const stream = process.start(
    { process: { cmd: 'sh', args: ['-c', 'sleep 4.5; echo done'] } },
    { headers: toSandbox('one') },
  );
  expect((await transcribe(stream)).stdout.toString()).toBe('done\n');
});

test('large files are uploaded and downloaded unchanged', async () => {
  const content = randomBytes(32 * 1024 ** 2);
  const path = join(one.scratch, 'large');
  expect((await upload('one', path, content)).status).toBe(200);
  const response = await fetch(files(path), { headers: toSandbox('one') });
  const hash = (data: Buffer) => createHash('sha256').update(data).digest('hex');
  expect(hash(Buffer.from(await response.arrayBuffer()))).toBe(hash(content));
});

test('a stalled reader stops the sandbox from sending: the gateway does not buffer', async () => {
  const path = join(one.scratch, 'large');
  const socket = connect(gateway.port, '127.0.0.1');
  socket.write(
    `GET /files?path=${encodeURIComponent(path)} HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: one\r\n\r\n`,
  );
  await once(socket, 'readable');
  const before = residentKib(gateway.pid);
  // That nothing more is read has no event.
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(residentKib(gateway.pid) - before).toBeLessThan(24 * 1024);
  socket.destroy();
});

test('a request without the header is a platform operation, or 400 that names the header', async () => {
  const missing = await fetch(`${gateway.url}/health`);
  expect(missing.status).toBe(400);
  expect(await missing.json()).toEqual({
    code: 400,
    message: 'header Svc-Sandbox-Id is missing: it names the sandbox',
  });
  expect((await gateway.call('GET /sandboxes')).body).toHaveLength(2);
  const inside = await fetch(`${gateway.url}/sandboxes`, {
    headers: { ...toSandbox('one'), 'x-api-key': API_KEY },
  });
  expect(inside.status).toBe(404);
  expect(await inside.text()).toMatch(/no such operation: GET \/sandboxes/);
});

test.each([
  [{ 'svc-sandbox-port': '49983' }, /header Svc-Sandbox-Id is missing/],
  [{ 'svc-sandbox-id': '' }, /header Svc-Sandbox-Id must be the id/],
  [{ 'svc-sandbox-id': 'a/b' }, /header Svc-Sandbox-Id must be the id/],
  [{ 'svc-sandbox-id': ['one', 'two'] }, /header Svc-Sandbox-Id must be given once/],
  [{ 'svc-sandbox-id': 'one', 'svc-sandbox-port': '' }, /header Svc-Sandbox-Port must be/],
  [{ 'svc-sandbox-id': 'one', 'svc-sandbox-port': '0' }, /header Svc-Sandbox-Port must be/],
  [{ 'svc-sandbox-id': 'one', 'svc-sandbox-port': '65536' }, /header Svc-Sandbox-Port must be/],
  [{ 'svc-sandbox-id': 'one', 'svc-sandbox-port': '+80' }, /header Svc-Sandbox-Port must be/],
  [
    { 'svc-sandbox-id': 'one', 'svc-sandbox-port': ['80', '80'] },
    /header Svc-Sandbox-Port must be given once/,
  ],
])('headers %j are refused by name', async (headers, message) => {
  const { status, body } = await raw('/health', headers);
  expect(status).toBe(400);
  expect(JSON.parse(body)).toEqual({ code: 400, message: expect.stringMatching(message) });
});

test('an unknown or unreachable sandbox is 502, with all three members', async () => {
  const unknown = await fetch(`${gateway.url}/health`, { headers: toSandbox('nobody') });
  expect(unknown.status).toBe(502);
  expect(await unknown.json()).toEqual({
    sandboxID: 'nobody',
    message: "sandbox 'nobody' was not found",
    code: 502,
  });
  // Nobody listens at this one, while one that is free now may be taken by then.
  const port = 1;
  const refused = await fetch(`${gateway.url}/`, { headers: toSandbox('one', port) });
  expect(refused.status).toBe(502);
  const message = `sandbox 'one' cannot be reached: port is not open: ${port}`;
  expect(await refused.json()).toEqual({ sandboxID: 'one', message, port, code: 502 });
});

test('a Connect client reads it as unavailable', async () => {
  const { process } = connectTo(gateway.url);
  await expect(process.list({}, { headers: toSandbox('nobody') })).rejects.toThrow(/unavailable/);
});

/** A server on another port of the sandbox than its daemon's. */
async function inside(
  onRequest: (request: IncomingMessage, socket: Socket) => void,
): Promise<Server & AsyncDisposable> {
  const server = createServer((request, response) => {
    onRequest(request, request.socket);
    response.setHeader('trailer', 'checksum');
    response.write('body ');
    request.on('end', () => {
      response.addTrailers({ checksum: `${request.trailers['x-sum'] ?? 'none'}` });
      response.end(request.rawHeaders.filter((_, index) => index % 2 === 0).join(','));
    });
    request.resume();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const dispose = async () => {
    server.closeAllConnections();
    server.close();
  };
  return Object.assign(server, { [Symbol.asyncDispose]: dispose });
}

const portOf = (server: Server) => (server.address() as AddressInfo).port;

test('other ports are reached; trailers are forwarded in both directions, hop-by-hop headers are not', async () => {
  await using server = await inside(() => {});
  const outgoing = httpRequest(`${gateway.url}/any`, {
    method: 'POST',
    headers: {
      ...toSandbox('one', portOf(server)),
      connection: 'keep-alive, x-of-this-hop',
      'x-of-this-hop': 'a',
      'x-own': ['a', 'b'],
      'x-api-key': API_KEY,
      trailer: 'x-sum',
    },
  });
  outgoing.write('hello');
  outgoing.addTrailers({ 'x-sum': '5d41' });
  outgoing.end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  const names = (await text(response)).toLowerCase().replace('body ', '').split(',');
  expect(response.trailers).toEqual({ checksum: '5d41' });
  expect(names.filter((name) => name === 'x-own')).toHaveLength(2);
  expect(names).not.toContain('x-of-this-hop');
  expect(names).not.toContain('x-api-key');
});

test('the sandbox sees a client disconnect', async () => {
  const closed = Promise.withResolvers<void>();
  await using server = await inside((_request, socket) => socket.once('close', () => closed.resolve()));
  const socket = connect(gateway.port, '127.0.0.1');
  const head = `POST / HTTP/1.1\r\nhost: a\r\nsvc-sandbox-id: one\r\nsvc-sandbox-port: ${portOf(server)}\r\n`;
  socket.write(`${head}content-length: 100\r\n\r\nhalf`);
  await once(socket, 'data');
  socket.destroy();
  await expect(closed.promise).resolves.toBeUndefined();
});

test('the client sees a response break off', async () => {
  const upstream = Promise.withResolvers<Socket>();
  await using server = await inside((_request, socket) => upstream.resolve(socket));
  const response = await fetch(gateway.url, {
    method: 'POST',
    headers: toSandbox('one', portOf(server)),
    body: new ReadableStream({ start: (controller) => controller.enqueue(Buffer.from('more')) }),
    duplex: 'half',
  } as RequestInit);
  (await upstream.promise).destroy();
  await expect(response.text()).rejects.toThrow('terminated');
});

test('refusals and preflights allow pages of any origin', async () => {
  const preflight = await fetch(`${gateway.url}/process.Process/List`, {
    method: 'OPTIONS',
    headers: {
      origin: 'https://page.example',
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'svc-sandbox-id,x-access-token',
    },
  });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get('access-control-allow-origin')).toBe('*');
  expect(preflight.headers.get('access-control-allow-headers')).toBe('svc-sandbox-id,x-access-token');
  const refused = await fetch(gateway.url, {
    headers: { origin: 'https://page.example', ...toSandbox('nobody') },
  });
  expect(refused.headers.get('access-control-allow-origin')).toBe('*');
});

test('a watch reports what happens while it is open', async () => {
  const directory = join(two.scratch, 'watched');
  mkdirSync(directory);
  const { filesystem } = connectTo(gateway.url, 'binary');
  const headers = toSandbox('two');
  for await (const { event } of filesystem.watchDir({ path: directory }, { headers })) {
    if (event.case === 'start') mkdirSync(join(directory, 'new'));
    if (event.case !== 'filesystem') continue;
    expect(event.value.name).toBe('new');
    break;
  }
});

function residentKib(pid: number): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}

async function raw(path: string, headers: Readonly<Record<string, string | string[]>>) {
  const outgoing = httpRequest(`${gateway.url}${path}`, { headers: { ...headers } });
  outgoing.end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  return { status: response.statusCode, body: await text(response) };
}
