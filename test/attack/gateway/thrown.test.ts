import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Bystander } from '../../support/programs/bystander.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import type { LogLine } from '../../support/programs/log-lines.ts';
import { exchange, message, type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';

const THROWING = fileURLToPath(new URL('../../support/attackers/throwing-gateway.ts', import.meta.url));
const CHUNKED =
  'HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n';
const SWITCHED = 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n';

let gateway: TestGateway;
let bystander: Bystander;
let sandbox: RawSandbox;

beforeAll(async () => {
  gateway = await startGateway({ flags: [`--import=${THROWING}`] });
  sandbox = await startRawSandbox((socket, head) =>
    socket.end(/upgrade: websocket/i.test(head) ? SWITCHED : CHUNKED),
  );
  await gateway.register('one', sandbox.port, { timeout: 3600 });
  bystander = await Bystander.of(gateway);
});

afterAll(async () => {
  for (const each of [bystander, sandbox, gateway]) await each[Symbol.asyncDispose]();
});

const TO = ['host: a', 'svc-sandbox-id: one'];
const uncaught = () =>
  gateway.log.filter(({ msg }) => msg === 'unexpected error: the gateway continues, please report it');

/** Expects that the error thrown at this place is logged with its stack. */
async function expectLogged(place: string): Promise<void> {
  const isIt = ({ err }: LogLine) => String(Object(err).stack).includes(`thrown: ${place}`);
  await expect
    .poll(() => gateway.log.filter((line) => line.level >= 50 && isIt(line)).length)
    .toBeGreaterThan(0);
}

test.each([
  'pipe',
  'trailers',
  'end',
  'head',
  'server-request',
  'client-socket',
  'client-finish',
  'client-response',
  'client-close',
  'timer',
  'immediate',
  'tick',
  'rejection',
])('an error thrown in a request ends that request, and is logged with its stack: %s', async (place) => {
  const body = '2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n';
  const lines = [`POST /throw/${place} HTTP/1.1`, ...TO, 'transfer-encoding: chunked', 'trailer: x-sum'];
  // Without `Connection: close`: only the gateway can end the connection.
  await exchange(gateway.port, message(lines, body));
  await expectLogged(place);
  await bystander.isServed();
});

test.each([
  'server-upgrade',
  'client-socket',
  'client-upgrade',
  'client-close',
  'timer',
  'immediate',
  'tick',
  'rejection',
])('an error thrown in an upgraded connection ends that connection: %s', async (place) => {
  const lines = [`GET /throw/${place} HTTP/1.1`, ...TO, 'connection: upgrade', 'upgrade: websocket'];
  await exchange(gateway.port, message(lines));
  await expectLogged(place);
  await bystander.isServed();
});

test('an error thrown while a request is refused ends that request', async () => {
  const lines = ['GET /throw/head HTTP/1.1', 'host: a', 'svc-sandbox-id: nobody'];
  await exchange(gateway.port, message(lines));
  await expectLogged('head');
  await bystander.isServed();
});

test.each(['nothing', 'strange'])(
  'a thrown value may be no error, or one whose members throw: %s',
  async (place) => {
    await exchange(gateway.port, message([`GET /throw/${place} HTTP/1.1`, ...TO]));
    await bystander.isServed();
  },
);

test('an error thrown outside of requests ends no connection', async () => {
  const before = uncaught().length;
  const lines = ['GET /throw/nobody HTTP/1.1', ...TO, 'connection: close'];
  expect(await exchange(gateway.port, message(lines))).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\nok\r\n0\r\n/s);
  const told = { connectionClosed: false, origin: 'uncaughtException' };
  await expect.poll(() => uncaught().slice(before)).toContainEqual(expect.objectContaining(told));
  await bystander.isServed();
});

test('a request after all these errors is served', async () => {
  const answer = await exchange(gateway.port, message(['GET / HTTP/1.1', ...TO, 'connection: close']));
  expect(answer).toMatch(/\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n$/);
  expect(uncaught().length).toBeGreaterThan(10);
});
