import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { encodeFrame } from '../../../src/daemon/http/protocol/codec.ts';
import { StartRequestSchema } from '../../../src/gen/process/process_pb.js';
import { closing } from '../../support/clients/closing.ts';
import { anonymousMemoryOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/*
 * Clients, with or without the token, that send many requests on a connection before the first is answered: the requests wait for
 * each other, others are served meanwhile, and neither memory nor log grow.
 */

const TOKEN = 't0ken';
const MIB = 1024 * 1024;
/** As much as the daemon reads at once. */
const BURST_BYTES = 64 * 1024;
/** So many requests of a connection are served or wait before it ends. */
const MOST_SERVED = 33;

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  const body = JSON.stringify({ accessToken: TOKEN });
  expect((await fetch(`${daemon.url}/init`, { method: 'POST', body })).status).toBe(204);
});
afterAll(() => daemon[Symbol.asyncDispose]());

interface Client {
  readonly socket: Socket;
  text: string;
}

async function open(): Promise<Client> {
  const socket = connect(daemon.port, '127.0.0.1');
  const client = { socket, text: '' };
  socket.on('error', () => {});
  socket.setEncoding('latin1').on('data', (text) => {
    client.text += text;
  });
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  return client;
}

const get = (path: string, headers = '') => `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`;
const statuses = (text: string) => Array.from(text.matchAll(/HTTP\/1\.1 (\d+) /g), ([, status]) => status);

async function metrics(): Promise<string> {
  const headers = { accept: 'text/plain', 'x-access-token': TOKEN };
  return (await fetch(`${daemon.url}/metrics`, { headers })).text();
}

/** How many calls the daemon has answered. */
async function served(): Promise<number> {
  const counts = (await metrics()).matchAll(/^envd_calls_total\{.*\} (\d+)$/gm);
  return Array.from(counts, ([, count]) => Number(count)).reduce((sum, count) => sum + count, 0);
}

/** Counts how many lines there may be from now on: 200 in each period of 10 s, and on a busy machine calls take several of them. */
function mostLines(): () => number {
  const began = performance.now();
  return () => 200 * (1 + Math.ceil((performance.now() - began) / 10_000));
}

test('requests of one connection are answered in their order', async () => {
  const client = await open();
  client.socket.write(
    [get('/health'), get('/envs'), get('/none', `X-Access-Token: ${TOKEN}\r\n`)].join('').repeat(10),
  );
  await until('all are answered', () => statuses(client.text).length === 30);
  expect(statuses(client.text)).toEqual(Array(10).fill(['204', '401', '404']).flat());
});

test('a request waits until the stream before it has ended', async () => {
  const client = await open();
  const path = join(daemon.scratch, 'pipelined');
  const config = { process: { cmd: '/bin/sh', args: ['-c', 'echo up; read line'] }, tag: 'first' };
  const frame = encodeFrame(StartRequestSchema, create(StartRequestSchema, config), 'json');
  const head = [
    'POST /process.Process/Start HTTP/1.1',
    'Host: x',
    `X-Access-Token: ${TOKEN}`,
    'Content-Type: application/connect+json',
    `Content-Length: ${frame.length}`,
  ];
  const upload = [
    `POST /files?path=${path} HTTP/1.1`,
    'Host: x',
    `X-Access-Token: ${TOKEN}`,
    'Content-Type: application/octet-stream',
    'Content-Length: 4',
  ];
  client.socket.write(
    `${head.join('\r\n')}\r\n\r\n${frame.toString('latin1')}${upload.join('\r\n')}\r\n\r\nlate`,
  );
  // By then a second request that did not wait would have been served.
  await until('it runs', () => client.text.includes(Buffer.from('up\n').toString('base64')));
  for (let count = 0; count < 20; count++) await fetch(`${daemon.url}/health`);
  expect(existsSync(path)).toBe(false);
  const closed = await fetch(`${daemon.url}/process.Process/CloseStdin`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-access-token': TOKEN },
    body: '{"process":{"tag":"first"}}',
  });
  expect(closed.status).toBe(200);
  await until('the upload is answered', () => statuses(client.text).length === 2);
  expect(statuses(client.text)).toEqual(['200', '200']);
  expect(existsSync(path)).toBe(true);
});

test('a burst of tiny requests ends its connection before the daemon has served it, and is not logged', async () => {
  const burst = get('/').repeat(BURST_BYTES / get('/').length);
  const [lines, before] = [daemon.log.length, await served()];
  const most = mostLines();
  const bursts = 20;
  for (let count = 0; count < bursts; count++) {
    const { socket } = await open();
    socket.write(burst);
    await closing(socket);
  }
  // The two figures count each other: the first reading of the metrics is a call, too.
  expect((await served()) - before).toBeLessThanOrEqual(bursts * MOST_SERVED + 1);
  expect(daemon.log.length - lines).toBeLessThan(most() + 100);
});

test('many connections that pipeline keep no memory', async () => {
  const burst = get('/health', `X-Padding: ${'x'.repeat(100)}\r\n`).repeat(400);
  const before = anonymousMemoryOf(daemon.pid);
  const clients = await Promise.all(Array.from({ length: 100 }, open));
  for (const { socket } of clients) socket.pause().write(burst);
  await until('each is closed or answered', async () => {
    return (
      Number(/^envd_connections_limited_total\{action="closed"\} (\d+)/m.exec(await metrics())?.[1]) >= 100
    );
  });
  expect(anonymousMemoryOf(daemon.pid) - before).toBeLessThan(60 * MIB);
});

test('lines of preflights are limited, too', async () => {
  const lines = () => daemon.log.filter(({ operation }) => String(operation).startsWith('OPTIONS')).length;
  const before = lines();
  const most = mostLines();
  for (let count = 0; count < 20; count++) {
    const client = await open();
    client.socket.write('OPTIONS /x HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(30));
    await until('all are answered', () => statuses(client.text).length === 30);
  }
  expect(lines() - before).toBeLessThanOrEqual(most());
});

test('lines of refused calls are limited, and what was not logged is counted', async () => {
  const lines = () => daemon.log.filter(({ status }) => status === 401).length;
  const before = lines();
  const most = mostLines();
  const answers = Array.from({ length: 600 }, () => fetch(`${daemon.url}/envs`));
  for (const answer of await Promise.all(answers)) expect(answer.status).toBe(401);
  expect(lines() - before).toBeLessThanOrEqual(most());
});
