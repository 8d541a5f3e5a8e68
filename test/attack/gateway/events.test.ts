import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { API_KEY, startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { startGuests } from '../../support/programs/guests.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { phase } from '../../support/servers/hook.ts';
import { until } from '../../support/until.ts';

const MIB = 1024 ** 2;

async function listen(server: Server, port = 0): Promise<string> {
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

const metric = async (gateway: TestGateway, line: string): Promise<number> => {
  const { text: page } = await gateway.call('GET /gateway/metrics');
  const found = page.split('\n').find((each) => each.startsWith(`${line} `));
  return Number(found?.slice(line.length) ?? 0);
};

const residentBytes = ({ pid }: TestGateway) =>
  Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;

/** Makes an event with each call. */
async function registerAgain(gateway: TestGateway, port: number, count: number): Promise<void> {
  let left = count;
  const register = async () => {
    while (left-- > 0) await gateway.register('one', port, { timeout: 6000 });
  };
  await Promise.all(Array.from({ length: 8 }, register));
}

test('a server that never answers holds up neither expiries nor a stop', async () => {
  let open = 0;
  let most = 0;
  const server = createServer((request) => {
    most = Math.max(most, ++open);
    request.on('close', () => open--);
  });
  const url = await listen(server);
  await using guests = await startGuests(60);
  const gateway = await startGateway({ args: ['--hook=true', `--event-hook=${url}`] });
  const ids = guests.ports.map((_, index) => `s${index}`);
  await Promise.all(ids.map((id, index) => gateway.register(id, guests.ports[index] ?? 0, { timeout: 1 })));
  for (const id of ids) await phase(gateway, id, 'paused');
  await until('events are sent', () => most > 0);
  expect(most).toBeLessThanOrEqual(16);
  expect(await gateway.kill('SIGTERM')).toEqual({ code: 0, signal: null });
});

/** Each of these answers is hostile in its own way. */
const ANSWERS: Readonly<Record<string, (response: ServerResponse) => void>> = {
  'a body without an end': (response) => {
    const piece = Buffer.alloc(64 * 1024);
    const write = () => {
      while (!response.destroyed && response.write(piece));
    };
    response.on('drain', write).on('error', () => {});
    write();
  },
  'a redirection to itself': (response) => response.writeHead(307, { location: '/' }).end(),
  'a head that is too large': (response) => response.writeHead(204, { 'x-big': 'x'.repeat(MIB) }).end(),
  'a connection that is reset': (response) => response.socket?.resetAndDestroy(),
};

test.each(Object.keys(ANSWERS))('%s harms nobody', async (name) => {
  let requests = 0;
  const url = await listen(
    createServer((request, response) => {
      requests++;
      request.resume();
      ANSWERS[name]?.(response);
    }),
  );
  await using guests = await startGuests(1);
  await using gateway = await startGateway({ args: [`--event-hook=${url}`] });
  const before = residentBytes(gateway);
  await registerAgain(gateway, guests.ports[0] ?? 0, 20);
  await until('it was asked', () => requests >= 20);
  expect((await gateway.call('GET /gateway/health')).status).toBe(204);
  expect(residentBytes(gateway) - before).toBeLessThan(128 * MIB);
  expect(gateway.log.filter(({ msg }) => String(msg).startsWith('unexpected error'))).toEqual([]);
});

test('of more than ten thousand events for a dead server the last ones are kept, and the loss is told', async () => {
  const port = await freePort();
  await using guests = await startGuests(1);
  await using gateway = await startGateway({ args: [`--event-hook=http://127.0.0.1:${port}/`] });
  const [guest = 0] = guests.ports;
  // More than the gateway itself keeps.
  await registerAgain(gateway, guest, 300);
  const read = async (query: string) => {
    const lines = (await gateway.call(`GET /events?follow=false${query}`)).text.trim().split('\n');
    return lines.map((line) => JSON.parse(line) as { readonly id: string; readonly lost?: number });
  };
  const [oldest] = await read('');
  const before = residentBytes(gateway);
  await registerAgain(gateway, guest, 10_000);
  expect(await read('')).toHaveLength(10_000);
  // A reader that has read one event and then nothing.
  const [first, next] = await read(`&after=${oldest?.id}`);
  expect(first).toEqual({ lost: 299 });
  expect(Number(next?.id.split('-')[1])).toBe(301);
  expect(residentBytes(gateway) - before).toBeLessThan(256 * MIB);
  let told = 0;
  await listen(
    createServer(async (request, response) => {
      await text(request);
      told++;
      response.writeHead(204).end();
    }),
    port,
  );
  const all = () => told >= 10_000;
  await until('the server has all that were kept', all, Boolean, 200_000);
  // The gateway itself had 256, and the registry the last 10,000.
  expect(await metric(gateway, 'envd_gateway_events_total{result="dropped"}')).toBe(300 - 256);
  expect(told).toBeLessThanOrEqual(10_000 + 256);
});

test('a server that refuses some events gets the others', async () => {
  const told: string[] = [];
  const url = await listen(
    createServer(async (request, response) => {
      const { sandboxID } = JSON.parse(await text(request)) as { readonly sandboxID: string };
      if (sandboxID !== 'poison') told.push(sandboxID);
      response.writeHead(sandboxID === 'poison' ? 400 : 204).end();
    }),
  );
  await using guests = await startGuests(1);
  await using gateway = await startGateway({ args: [`--event-hook=${url}`] });
  const register = (id: string) => gateway.register(id, guests.ports[0] ?? 0, { timeout: 600 });
  await register('poison');
  await until('it is refused twice', async () => {
    return (await metric(gateway, 'envd_gateway_events_total{result="failed"}')) >= 2;
  });
  for (let index = 0; index < 40; index++) await register('good');
  await until('the others are told', () => told.length >= 40);
  expect(new Set(told)).toEqual(new Set(['good']));
});

test("readers that read nothing take an owner's share of the places, and no more", async () => {
  const keys = join(scratch(), 'keys');
  writeFileSync(keys, `platform ${API_KEY}-2\nclient eve key-of-eve\nclient ada key-of-ada\n`);
  await using gateway = await startGateway({ args: [`--key-file=${keys}`] });
  const statuses: string[] = [];
  const sockets = Array.from({ length: 60 }, () => {
    const socket = connect(gateway.port, '127.0.0.1');
    socket.write('GET /events HTTP/1.1\r\nHost: a\r\nX-API-Key: key-of-eve\r\n\r\n');
    socket.once('data', (head) => {
      statuses.push(String(head).split(' ')[1] ?? '');
      socket.pause();
    });
    return socket;
  });
  onTestFinished(() => sockets.forEach((socket) => void socket.destroy()));
  await until('all are answered', () => statuses.length === 60);
  expect(statuses.filter((status) => status === '200')).toHaveLength(32);
  expect(statuses.filter((status) => status === '429')).toHaveLength(28);
  const left = new AbortController();
  const read = (key: string) =>
    fetch(`${gateway.url}/events`, { headers: { 'x-api-key': key }, signal: left.signal });
  for (const key of ['key-of-ada', API_KEY]) expect((await read(key)).status).toBe(200);
  const refused = await read('key-of-eve');
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1']);
  for (const socket of sockets) socket.destroy();
  await until('the places are free again', async () => (await read('key-of-eve')).status === 200);
  left.abort();
});

test('no client reads events of another, or of none', async () => {
  const keys = join(scratch(), 'keys');
  writeFileSync(keys, `platform ${API_KEY}-2\nclient eve key-of-eve\nclient ada key-of-ada\n`);
  await using guests = await startGuests(2);
  await using gateway = await startGateway({ args: [`--key-file=${keys}`] });
  await gateway.register('of-ada', guests.ports[0] ?? 0, { owner: 'ada' });
  await gateway.register('of-nobody', guests.ports[1] ?? 0);
  const ask = async (query: string) =>
    (await gateway.call(`GET /events?follow=false${query}`, undefined, { 'x-api-key': 'key-of-eve' })).text;
  for (const query of ['', '&after=0-0', '&owner=ada', '&after=1-1&owner=ada'])
    expect(await ask(query)).toBe('');
  for (const operation of ['GET /hosts', 'PATCH /hosts/127.0.0.1']) {
    const body = operation.startsWith('PATCH') ? { drain: true } : undefined;
    expect((await gateway.call(operation, body, { 'x-api-key': 'key-of-eve' })).status).toBe(403);
  }
});
