import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, openSync, writeSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { filesUrl } from '../../support/clients/files-client.ts';
import { growthOf, openFiles } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* Clients that begin downloads and never read: the daemon's memory is bounded, and others still download. */

const MIB = 1024 * 1024;
const SIZE = 64 * MIB;
const CLIENTS = 300;
const PLACES = 16;
/** See `download-limits.ts`: 32 MiB of content, 16 bodies of half a MiB, and what the connections take; and garbage
 * on a busy machine, 38 to 72 MiB in all. Without a bound it is 345. */
const MOST_ADDED = 160 * MIB;

let daemon: TestDaemon;
let path: string;
beforeAll(async () => {
  daemon = await startDaemon();
  path = join(daemon.scratch, 'large.txt');
  const file = openSync(path, 'w');
  const piece = randomBytes(MIB);
  for (let written = 0; written < SIZE; written += MIB) writeSync(file, piece);
  closeSync(file);
  // What the first downloads load and compile must not count.
  for (const coding of ['identity', 'gzip']) await downloaded(coding);
});
afterAll(() => daemon[Symbol.asyncDispose]());

async function downloaded(coding: string): Promise<number> {
  const response = await fetch(filesUrl(daemon, { path }), { headers: { 'accept-encoding': coding } });
  return (await response.arrayBuffer()).byteLength;
}

async function stalled(headers: string): Promise<Socket> {
  const socket = connect(daemon.port, '127.0.0.1').pause();
  socket.on('error', () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  const query = new URLSearchParams({ path });
  socket.write(`GET /files?${query} HTTP/1.1\r\nhost: x\r\n${headers}\r\n`);
  return socket;
}

const open = () => openFiles(daemon.pid).filter((file) => file === path).length;

test.each([
  ['plain', 'accept-encoding: identity\r\n'],
  ['compressed', 'accept-encoding: gzip\r\n'],
])('%s downloads that stall keep bounded memory', async (_name, headers) => {
  await until('earlier downloads are closed', open, (count) => count === 0);
  const grown = await growthOf(daemon.pid, async () => {
    await Promise.all(Array.from({ length: CLIENTS }, () => stalled(headers)));
    await until('all downloads have begun', open, (count) => count === CLIENTS);
    expect(await downloaded('identity')).toBe(SIZE);
  });
  expect(grown).toBeLessThan(MOST_ADDED);
});

test('more compressed downloads than there are places are refused when nothing else is acceptable', async () => {
  await until('earlier downloads are closed', open, (count) => count === 0);
  const headers = 'accept-encoding: gzip, identity;q=0\r\n';
  await Promise.all(Array.from({ length: PLACES }, () => stalled(headers)));
  await until('all downloads have begun', open, (count) => count === PLACES);
  const socket = await stalled(headers);
  const [answer] = await once(socket.resume(), 'data');
  expect(String(answer)).toMatch(/^HTTP\/1\.1 429 /);
  expect(String(answer)).toContain('too many downloads at the same time');
});
