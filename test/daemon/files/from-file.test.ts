import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rmSync, truncateSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { closing } from '../../support/clients/closing.ts';
import { get } from '../../support/clients/files-client.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* Large downloads, which the kernel sends from the file to the connection. */

const CONTENT = randomBytes(20_000_000);

let daemon: TestDaemon;
let path: string;
beforeAll(async () => {
  daemon = await startDaemon();
  path = join(daemon.scratch, 'large');
  writeFileSync(path, CONTENT);
});
afterAll(() => daemon[Symbol.asyncDispose]());

const ask = (more = '', method = 'GET') =>
  `${method} /files?${new URLSearchParams({ path })} HTTP/1.1\r\nhost: x\r\n${more}\r\n`;
const HEALTH = 'GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n';

async function open(): Promise<Socket> {
  const socket = connect(daemon.port, '127.0.0.1');
  socket.on('error', () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  return socket;
}

async function rest(socket: Socket): Promise<Buffer> {
  const pieces: Buffer[] = [];
  socket.on('data', (piece: Buffer) => pieces.push(piece)).resume();
  await closing(socket);
  return Buffer.concat(pieces);
}

/** The bodies in what a connection has carried. */
function bodiesOf(bytes: Buffer): { readonly heads: string[]; readonly bodies: Buffer[] } {
  const [heads, bodies]: [string[], Buffer[]] = [[], []];
  for (let at = 0; at < bytes.length; ) {
    const start = bytes.indexOf('\r\n\r\n', at) + 4;
    const head = bytes.toString('latin1', at, start);
    at = start + Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
    heads.push(head);
    bodies.push(bytes.subarray(start, at));
  }
  return { heads, bodies };
}

const held = () => openFiles(daemon.pid).filter((file) => file === path).length;

test('the connection can be used again, and requests may be pipelined', async () => {
  const socket = await open();
  socket.write(ask() + ask('range: bytes=1000000-1999999\r\n') + ask());
  socket.write(HEALTH);
  const { heads, bodies } = bodiesOf(await rest(socket));
  expect(heads.map((head) => head.slice(9, 12))).toEqual(['200', '206', '200', '204']);
  expect(bodies[0]?.equals(CONTENT)).toBe(true);
  expect(bodies[1]?.equals(CONTENT.subarray(1_000_000, 2_000_000))).toBe(true);
  expect(bodies[2]?.equals(CONTENT)).toBe(true);
  await until('the file is closed', held, (count) => count === 0);
});

test('a request behind a download that is under way is answered after it', async () => {
  const socket = (await open()).pause();
  socket.write(ask());
  await until('the download has begun', held, (count) => count === 1);
  socket.write(HEALTH);
  const { heads, bodies } = bodiesOf(await rest(socket));
  expect(heads.map((head) => head.slice(9, 12))).toEqual(['200', '204']);
  expect(bodies[0]?.equals(CONTENT)).toBe(true);
});

test('Connection: close ends the connection after the body', async () => {
  const socket = await open();
  socket.write(ask('connection: close\r\n'));
  const { heads, bodies } = bodiesOf(await rest(socket));
  expect(heads[0]).toMatch(/\r\nconnection: close\r\n/i);
  expect(bodies[0]?.equals(CONTENT)).toBe(true);
});

test('a client that disconnects leaves no descriptor behind', async () => {
  const before = openFiles(daemon.pid).length;
  const socket = (await open()).pause();
  socket.write(ask());
  await until('the download has begun', held, (count) => count === 1);
  socket.resetAndDestroy();
  await expect.poll(held).toBe(0);
  await expect.poll(() => openFiles(daemon.pid).length).toBeLessThanOrEqual(before);
});

test('a file that is truncated meanwhile breaks the connection', async () => {
  const own = join(daemon.scratch, 'truncated');
  writeFileSync(own, CONTENT);
  const socket = (await open()).pause();
  socket.write(`GET /files?${new URLSearchParams({ path: own })} HTTP/1.1\r\nhost: x\r\n\r\n`);
  // Its head tells the length: the file may be open before its length has been taken.
  const [head] = await once(socket.resume(), 'data');
  socket.pause();
  expect(String(head)).toContain(`content-length: ${CONTENT.length}\r\n`);
  truncateSync(own, 1000);
  expect((await rest(socket)).length).toBeLessThan(CONTENT.length);
  rmSync(own);
  await expect.poll(() => daemon.log.some((line) => line.msg === 'download aborted')).toBe(true);
});

test('HEAD sends no body', async () => {
  const response = await get(daemon, path, {}, 'HEAD');
  expect(response.headers.get('content-length')).toBe(String(CONTENT.length));
  expect((await response.arrayBuffer()).byteLength).toBe(0);
});

test('the bytes are counted', async () => {
  const sent = async () => {
    const text = await (await fetch(`${daemon.url}/metrics`, { headers: { accept: 'text/plain' } })).text();
    return Number(/^envd_download_bytes_total (\S+)/m.exec(text)?.[1]);
  };
  const before = await sent();
  await (await get(daemon, path)).arrayBuffer();
  await expect.poll(async () => (await sent()) - before).toBeGreaterThanOrEqual(CONTENT.length);
  expect((await sent()) - before).toBeLessThan(CONTENT.length + 2000);
});

test('a stop does not wait for a client that does not read', async () => {
  await using other = await startDaemon();
  const socket = connect(other.port, '127.0.0.1').pause();
  socket.on('error', () => {});
  socket.write(ask());
  await until('the download has begun', () => openFiles(other.pid).includes(path));
  expect(await other.stop()).toBe(0);
  socket.destroy();
});
