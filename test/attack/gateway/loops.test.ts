import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { Bystander } from '../../support/programs/bystander.ts';
import { startGateway, type TestGateway, toSandbox } from '../../support/programs/gateway.ts';
import { exchange, message, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { startRedis } from '../../support/servers/redis-server.ts';

let gateway: TestGateway;
let bystander: Bystander;

beforeEach(async () => {
  gateway = await startGateway({ args: ['--max-requests=50'] });
  bystander = await Bystander.of(gateway);
});

afterEach(async () => {
  for (const each of [bystander, gateway]) await each[Symbol.asyncDispose]();
});

const get = (id: string, ...lines: readonly string[]) =>
  message(['GET /a HTTP/1.1', 'host: a', `svc-sandbox-id: ${id}`, 'connection: close', ...lines]);
const upgrade = (id: string) =>
  message([
    ...['GET /a HTTP/1.1', 'host: a', `svc-sandbox-id: ${id}`, 'connection: upgrade', 'upgrade: websocket'],
    ...['sec-websocket-version: 13', 'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=='],
  ]);

function expectLoop(answer: string, id: string): void {
  expect(answer).toMatch(/^HTTP\/1\.1 508 Loop Detected\r\n/);
  const message = expect.stringMatching(/has forwarded this request to sandbox '.*' before/);
  expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toEqual({ sandboxID: id, message, code: 508 });
}

async function expectResults(results: Readonly<Record<string, number>>): Promise<void> {
  const { text } = await gateway.call('GET /gateway/metrics');
  for (const [result, count] of Object.entries(results))
    expect(text).toContain(`envd_gateway_requests_total{result="${result}"} ${count}\n`);
}

/** Returns the headers to send on for those received. */
type Rewrite = (headers: IncomingHttpHeaders) => IncomingHttpHeaders;

interface Relay {
  readonly port: number;
  /** The headers of all requests received. */
  readonly seen: readonly IncomingHttpHeaders[];
}

/** A proxy in a sandbox that sends all requests and upgrades to the gateway. */
async function startRelay(rewrite: Rewrite = (headers) => headers): Promise<Relay> {
  const seen: IncomingHttpHeaders[] = [];
  const forward = ({ headers, method = '', url = '' }: IncomingMessage) => {
    seen.push(headers);
    return request({ port: gateway.port, host: '127.0.0.1', method, path: url, headers: rewrite(headers) });
  };
  const server = createServer((incoming, response) => {
    const outgoing = forward(incoming).end();
    outgoing.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 0, answer.headers);
      answer.pipe(response);
    });
    outgoing.on('error', () => response.destroy());
  });
  server.on('upgrade', (incoming, socket) => {
    const outgoing = forward(incoming).end();
    outgoing.on('response', (answer) => {
      socket.write(`HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}\r\nconnection: close\r\n\r\n`);
      answer.pipe(socket);
    });
    for (const each of [outgoing, socket]) each.on('error', () => socket.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

test("a sandbox whose address is the gateway's own", async () => {
  await gateway.register('loop', gateway.port);
  expectLoop(await exchange(gateway.port, get('loop')), 'loop');
  expectLoop(await exchange(gateway.port, upgrade('loop')), 'loop');
  expectLoop(await exchange(gateway.port, get('loop', `svc-sandbox-port: ${gateway.port}`)), 'loop');
  // The fourth is the bystander's.
  await expectResults({ carried: 4, looped: 3 });
  await bystander.isServed();
});

test.each<readonly [string, Rewrite]>([
  ['as they are', (headers) => headers],
  [
    'with a Via of its own behind',
    (headers) => ({ ...headers, via: `${headers.via}, 1.1 relay (some text)` }),
  ],
  ['with a Via of its own before', (headers) => ({ ...headers, via: `1.0 relay, ${headers.via}` })],
  ['in upper case', (headers) => ({ ...headers, via: headers.via?.toUpperCase() })],
  ['with Via named by Connection', (headers) => ({ ...headers, connection: 'close, via' })],
])('a relay in a sandbox that passes headers on %s', async (_how, rewrite) => {
  const relay = await startRelay(rewrite);
  await gateway.register('relay', relay.port);
  expectLoop(await exchange(gateway.port, get('relay')), 'relay');
  expect(relay.seen).toHaveLength(1);
  await bystander.isServed();
});

test('a relay of WebSockets', async () => {
  const relay = await startRelay();
  await gateway.register('relay', relay.port);
  expectLoop(await exchange(gateway.port, upgrade('relay')), 'relay');
  expect(relay.seen).toHaveLength(1);
});

test('relays in two sandboxes that send requests to each other: each is reached once', async () => {
  const [one, two] = await Promise.all([
    startRelay((headers) => ({ ...headers, ...toSandbox('two') })),
    startRelay((headers) => ({ ...headers, ...toSandbox('one') })),
  ]);
  await gateway.register('one', one.port);
  await gateway.register('two', two.port);
  expectLoop(await exchange(gateway.port, get('one')), 'one');
  expect([one.seen.length, two.seen.length]).toEqual([1, 1]);
});

test('gateways of one registry are one', async () => {
  await using redis = await startRedis();
  const args = [`--redis=${redis.url}`];
  await using first = await startGateway({ args });
  await using second = await startGateway({ args });
  await first.register('loop', second.port);
  expectLoop(await exchange(first.port, get('loop')), 'loop');
  const { text } = await second.call('GET /gateway/metrics');
  expect(text).toContain('{result="carried"} 0\n');
});

test('a gateway recognises its requests after a restart', async () => {
  const seen: string[] = [];
  await using sandbox = await startRawSandbox((socket, head) => {
    seen.push(/^via: (.*)\r$/im.exec(head)?.[1] ?? '');
    socket.end('HTTP/1.1 204 No Content\r\n\r\n');
  });
  await gateway.register('one', sandbox.port);
  await exchange(gateway.port, get('one'));
  await gateway.kill('SIGKILL');
  await using again = await startGateway({ directory: gateway.directory });
  expectLoop(await exchange(again.port, get('one', `via: ${seen[0]}`)), 'one');
});

test('the Via that one sandbox has seen is accepted for another sandbox, and by another gateway', async () => {
  await using other = await startGateway();
  const seen: string[] = [];
  await using sandbox = await startRawSandbox((socket, head) => {
    seen.push(/^via: (.*)\r$/im.exec(head)?.[1] ?? '');
    socket.end('HTTP/1.1 204 No Content\r\n\r\n');
  });
  for (const id of ['one', 'two']) await gateway.register(id, sandbox.port);
  await other.register('one', sandbox.port);
  await exchange(gateway.port, get('one'));
  const [known = ''] = seen;
  expect(known).toMatch(/^1\.1 envd-[0-9a-f]{32}$/);
  expect(await exchange(gateway.port, get('two', `via: ${known}`))).toMatch(/^HTTP\/1\.1 204 /);
  expect(await exchange(other.port, get('one', `via: ${known}`))).toMatch(/^HTTP\/1\.1 204 /);
  // The gateways add theirs behind it, a different one for each sandbox.
  expect(seen[1]?.startsWith(`${known}, 1.1 envd-`)).toBe(true);
  expect(new Set(seen.map((via) => via.split(' ').at(-1))).size).toBe(3);
});

test.each(['1.1 other', '1.1 envd-00000000000000000000000000000000', ',,', 'x'.repeat(4000), '1.1 envd-'])(
  'a Via of others is forwarded: %.40s',
  async (via) => {
    const seen: string[] = [];
    await using sandbox = await startRawSandbox((socket, head) => {
      seen.push(head);
      socket.end('HTTP/1.1 204 No Content\r\n\r\n');
    });
    await gateway.register('one', sandbox.port);
    expect(await exchange(gateway.port, get('one', `via: ${via}`))).toMatch(/^HTTP\/1\.1 204 /);
    expect(seen[0]).toContain(`${via}, 1.1 envd-`);
  },
);

test('a relay that removes Via goes round until the limit of requests in flight', async () => {
  const relay = await startRelay(({ via: _, ...headers }) => headers);
  await gateway.register('relay', relay.port);
  expect(await exchange(gateway.port, get('relay'))).toMatch(
    /^HTTP\/1\.1 503 .*"message":"sandbox 'relay' has 50 requests in flight, the most that it may have/s,
  );
  expect(relay.seen).toHaveLength(50);
  // One is the bystander's.
  await expectResults({ carried: 51, busy: 1 });
  await bystander.isServed();
});

test("the limit of requests in flight is one sandbox'", async () => {
  await using silent = await startRawSandbox(() => {});
  await gateway.register('silent', silent.port);
  const sockets = Array.from({ length: 60 }, () => connect(gateway.port, '127.0.0.1'));
  let refused = 0;
  for (const socket of sockets) {
    socket.on('error', () => {}).once('data', () => refused++);
    socket.write(get('silent'));
  }
  await expect.poll(() => refused).toBe(10);
  await bystander.isServed();
  expect(await exchange(gateway.port, get('silent'))).toMatch(/^HTTP\/1\.1 503 /);
  expect(await exchange(gateway.port, upgrade('silent'))).toMatch(/^HTTP\/1\.1 503 /);
  silent.behaviour = (socket) => socket.end('HTTP/1.1 204 No Content\r\n\r\n');
  for (const socket of sockets) socket.destroy();
  await expect.poll(() => exchange(gateway.port, get('silent'))).toMatch(/^HTTP\/1\.1 204 /);
});
