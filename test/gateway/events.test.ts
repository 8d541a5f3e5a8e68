import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { API_KEY, startGateway, type TestGateway, toSandbox } from '../support/programs/gateway.ts';
import { startGuests } from '../support/programs/guests.ts';
import { phase } from '../support/servers/hook.ts';
import { startRedis } from '../support/servers/redis-server.ts';
import { until } from '../support/until.ts';

interface Told {
  readonly id: string;
  readonly event: string;
  readonly reason: string;
  readonly sandboxID: string;
  readonly owner: string | null;
}

interface Receiver {
  readonly url: string;
  /** The events, and the headers and the body of each. */
  readonly told: Told[];
  readonly requests: { readonly headers: IncomingHttpHeaders; readonly body: string }[];
  /** The server answers with this status. */
  status: number;
}

async function receive(): Promise<Receiver> {
  const server = createServer(async (request, response) => {
    const body = await text(request);
    receiver.requests.push({ headers: request.headers, body });
    if (receiver.status === 204) receiver.told.push(JSON.parse(body) as Told);
    response.writeHead(receiver.status).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/events`;
  const receiver: Receiver = { url, told: [], requests: [], status: 204 };
  return receiver;
}

const short = (told: readonly Told[]) =>
  told.map(({ sandboxID, event, reason }) => `${sandboxID} ${event} ${reason}`);

async function kept(gateway: TestGateway, query = '', key = API_KEY): Promise<readonly Told[]> {
  const { status, text: lines } = await gateway.call(`GET /events?follow=false${query}`, undefined, {
    'x-api-key': key,
  });
  expect(status).toBe(200);
  return lines
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Told);
}

test('the life of sandboxes is told with its reasons, to a server and to a person', async () => {
  const receiver = await receive();
  await using guests = await startGuests(4);
  const hooks = ['--hook=true', '--resume-hook=true', '--kill-hook=[ $SANDBOX_ID != stuck ]'];
  await using gateway = await startGateway({ args: [...hooks, `--event-hook=${receiver.url}`] });
  const [first = 0, second = 0, third = 0, fourth = 0] = guests.ports;
  await gateway.register('one', first, { timeout: 600, owner: 'ada' });
  await gateway.call('POST /sandboxes/one/pause');
  await gateway.call('POST /sandboxes/one/connect', { timeout: 600 });
  await gateway.call('POST /sandboxes/one/timeout', { timeout: 0 });
  await phase(gateway, 'one', 'paused');
  await gateway.call('DELETE /sandboxes/one');
  await gateway.register('two', second, {
    timeout: 0,
    onExpiry: 'remove',
    host: 'node-2',
    templateID: 'base',
  });
  await phase(gateway, 'two', 'gone');
  await gateway.register('three', third, { timeout: 600, idleTimeout: 1 });
  await phase(gateway, 'three', 'paused');
  await gateway.register('stuck', fourth, { timeout: 600 });
  expect((await gateway.call('DELETE /sandboxes/stuck')).status).toBe(502);
  const last = 'stuck failed kill';
  const lines = [
    'one created registration',
    'one paused request',
    'one resumed request',
    'one expired timeout',
    'one paused timeout',
    'one removed request',
    'two created registration',
    'two expired timeout',
    'two removed timeout',
    'three created registration',
    'three expired idle',
    'three paused idle',
    'stuck created registration',
    last,
  ];
  const all = await kept(gateway);
  expect(short(all).slice(0, lines.length)).toEqual(lines);
  expect(all[0]?.owner).toBe('ada');
  expect(all.find(({ sandboxID }) => sandboxID === 'two')).toMatchObject({
    host: 'node-2',
    templateID: 'base',
  });
  await until('the server has all', () => lines.every((line) => short(receiver.told).includes(line)));
  // The kill hook is called again and again, whatever else is under way.
  const others = (told: readonly string[]) => told.filter((line) => line !== last).toSorted();
  expect(others(short(receiver.told))).toEqual(others(lines));
  expect(receiver.told.find(({ id }) => id === all[3]?.id)).toEqual(all[3]);
  // A reader goes on behind the last event that he has seen.
  expect(short(await kept(gateway, `&after=${all[3]?.id}`))[0]).toBe('one paused timeout');
  expect((await gateway.call('GET /events?after=now')).status).toBe(400);
});

test('a reader follows the events as they come', async () => {
  await using guests = await startGuests(1);
  await using gateway = await startGateway();
  const left = new AbortController();
  const { headers, body } = await fetch(`${gateway.url}/events`, {
    headers: { 'x-api-key': API_KEY },
    signal: left.signal,
  });
  expect(headers.get('content-type')).toBe('application/x-ndjson');
  await gateway.register('one', guests.ports[0] ?? 0);
  const { value } = (await body?.getReader().read()) ?? {};
  expect(Buffer.from(value ?? []).toString()).toContain('"event":"created"');
  left.abort();
});

test('an event is signed, and tried again with the same id until the server has it', async () => {
  const receiver = await receive();
  receiver.status = 500;
  const key = Buffer.alloc(32, 7).toString('base64');
  await using guests = await startGuests(1);
  await using gateway = await startGateway({
    args: [`--event-hook=${receiver.url}`, `--hook-secret=whsec_${key}`],
  });
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 600 });
  await until('a second attempt', () => receiver.requests.length >= 2);
  receiver.status = 204;
  await until('it is told', () => receiver.told.length === 1);
  const ids = receiver.requests.map(({ headers }) => headers['webhook-id']);
  expect(new Set([...ids, receiver.told[0]?.id])).toHaveLength(1);
  const { headers, body } = receiver.requests.at(-1) ?? { headers: {}, body: '' };
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
  const signature = createHmac('sha256', Buffer.from(key, 'base64')).update(signed).digest('base64');
  expect(headers['webhook-signature']).toBe(`v1,${signature}`);
  // The server has it before the gateway has the answer.
  await until('that is counted', async () =>
    (await gateway.call('GET /gateway/metrics')).text.includes(
      'envd_gateway_events_total{result="delivered"} 1\n',
    ),
  );
});

test('of two gateways one sends each event, and the other one goes on when that stops', async () => {
  const receiver = await receive();
  const redis = await startRedis();
  onTestFinished(() => redis[Symbol.asyncDispose]());
  await using guests = await startGuests(20);
  const args = [`--redis=${redis.url}`, `--event-hook=${receiver.url}`];
  await using other = await startGateway({ args });
  const first = await startGateway({ args });
  const register = (from: number, to: number) =>
    Promise.all(
      guests.ports
        .slice(from, to)
        .map((port, index) =>
          (index % 2 ? first : other).register(`s${from + index}`, port, { timeout: 600 }),
        ),
    );
  await register(0, 10);
  await until('ten are told', () => receiver.told.length === 10);
  await other.kill('SIGTERM');
  for (const [index, port] of guests.ports.slice(10).entries())
    await first.register(`s${10 + index}`, port, { timeout: 600 });
  await until('twenty are told', () => receiver.told.length === 20);
  await first[Symbol.asyncDispose]();
  expect(new Set(receiver.requests.map(({ headers }) => headers['idempotency-key']))).toHaveLength(20);
  expect(receiver.requests).toHaveLength(20);
});

test('a client reads its own events only, until its key is withdrawn', async () => {
  await using guests = await startGuests(2);
  const keys = join(scratch(), 'keys');
  const write = (...lines: readonly string[]) =>
    writeFileSync(keys, `platform ${API_KEY}-2\nclient ada key-of-ada\n${lines.join('\n')}\n`);
  write('client eve key-of-eve');
  await using gateway = await startGateway({ args: [`--key-file=${keys}`] });
  await gateway.register('of-ada', guests.ports[0] ?? 0, { owner: 'ada' });
  await gateway.register('of-eve', guests.ports[1] ?? 0, { owner: 'eve' });
  expect(short(await kept(gateway))).toHaveLength(2);
  expect(short(await kept(gateway, '', 'key-of-eve'))).toEqual(['of-eve created registration']);
  expect((await gateway.call('GET /events', undefined, { 'x-api-key': 'wrong' })).status).toBe(401);
  const open = await fetch(`${gateway.url}/events`, { headers: { 'x-api-key': 'key-of-eve' } });
  write();
  // The stream ends by itself.
  expect(await open.text()).toContain('of-eve');
  // A request that names a sandbox is not for the gateway.
  const named = await fetch(`${gateway.url}/events`, { headers: toSandbox('of-ada') });
  expect(named.headers.get('content-type')).not.toBe('application/x-ndjson');
});
