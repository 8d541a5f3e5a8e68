import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { signFile } from '../../../src/conformance/suite/sign-file.ts';
import {
  droppedArchives,
  filesUrl,
  openRequest,
  post,
  uploadHead,
} from '../../support/clients/files-client.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { archiveOf, memberOf } from '../../support/services/tar-archive.ts';
import { until } from '../../support/until.ts';

/* Clients begin to read or to write as many archives as they can, and then do nothing. */

const TAR = { 'content-type': 'application/x-tar' };
/** More than all places of one direction. */
const MANY = 32;

let daemon: TestDaemon;
let directory: string;
beforeEach(async () => {
  // The places of a client that has left are given back a moment later, so each test has a daemon of its own.
  daemon = await startDaemon();
  directory = scratch();
  // More than the kernel keeps for a connection.
  for (let index = 0; index < 64; index++)
    writeFileSync(`${directory}/${index}`, Buffer.alloc(512 * 1024, 'x'));
});

afterEach(async () => {
  await daemon[Symbol.asyncDispose]();
});

const read = () => fetch(filesUrl(daemon, { path: directory, format: 'tar' }));
const write = () =>
  post(
    daemon,
    { path: `${directory}/new` },
    TAR,
    archiveOf({ name: 'f', content: 'x' }) as Buffer<ArrayBuffer>,
  );

/** A download whose client takes nothing. */
function stalledRead(): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const sent = request(filesUrl(daemon, { path: directory, format: 'tar' }), { agent: false }, (response) => {
    response.on('error', () => {});
    resolve(response);
  });
  sent.on('error', reject).end();
  return promise;
}

/** An upload whose client sends one file, and no end. */
function stalledWrite(index: number): Promise<Socket> {
  const head = uploadHead(`path=${directory}/stalled-${index}`, { ...TAR, 'content-length': 1_000_000 });
  return openRequest(daemon, head, memberOf({ name: 'file', content: 'content' }));
}

test('readers that stall do not block writers, nor readers for long', async () => {
  const stalled = await Promise.all(Array.from({ length: MANY }, stalledRead));
  const served = stalled.filter(({ statusCode }) => statusCode === 200).length;
  // On a busy machine the first ones have stalled for long before the last one asks, which then gets the place of one of them.
  expect(served).toBeGreaterThanOrEqual(16);
  await until('no more than 16 have places', () => served - droppedArchives(daemon) <= 16);
  expect((await write()).status).toBe(200);
  const answer = await until('a place is free', read, ({ status }) => status === 200);
  expect((await answer.arrayBuffer()).byteLength).toBeGreaterThan(32 * 1024 * 1024);
  for (const response of stalled) response.destroy();
});

test('writers that stall do not block readers, nor writers for long', async () => {
  const all = Array.from({ length: 16 }, (_, index) => index);
  const stalled = await Promise.all(all.map(stalledWrite));
  const isUnpacked = (index: number) => existsSync(`${directory}/stalled-${index}/file`);
  await until('all are under way', () => all.every(isUnpacked));
  const answers = stalled.map(async (socket) => {
    let text = '';
    for await (const piece of socket) {
      text += piece;
      break;
    }
    return text;
  });
  expect((await read()).status).toBe(200);
  await until('a place is free', write, ({ status }) => status === 200);
  const first = await Promise.any(answers);
  expect(first).toMatch(/^HTTP\/1.1 429 /);
  expect(first).toContain('archive was dropped: its client moved nothing for');
  expect(first).toContain('unpacked before: 1 files (7 bytes)');
  for (const socket of stalled) socket.destroy();
});

test('a signature for a file opens no tree, neither to read nor to write', async () => {
  await using own = await startDaemon();
  const token = 'secret';
  await fetch(`${own.url}/init`, { method: 'POST', body: JSON.stringify({ accessToken: token }) });
  const path = `${directory}/tree`;
  mkdirSync(path);
  const signature = (operation: 'read' | 'write' | 'read-archive' | 'write-archive') =>
    signFile({ path, operation, username: '', token });
  const download = async (query: object) => (await fetch(filesUrl(own, { path, ...query }))).status;
  const archive = archiveOf({ name: 'f', content: 'x' }) as Buffer<ArrayBuffer>;
  const upload = async (query: object) => (await post(own, { path, ...query }, TAR, archive)).status;
  expect(await download({ format: 'tar', signature: signature('read') })).toBe(401);
  expect(await download({ format: 'tar', signature: signature('read-archive') })).toBe(200);
  expect(await download({ signature: signature('read-archive') })).toBe(401);
  expect(await upload({ signature: signature('write') })).toBe(401);
  expect(existsSync(`${path}/f`)).toBe(false);
  expect(await upload({ signature: signature('write-archive') })).toBe(200);
});
