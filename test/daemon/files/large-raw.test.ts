import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { openRequest, RAW, uploadHead } from '../../support/clients/files-client.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* Large raw uploads, whose bodies arrive in pieces of any size. */

const CONTENT = randomBytes(5_000_000);

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const head = (path: string, more: Record<string, string> = {}) =>
  uploadHead(String(new URLSearchParams({ path })), {
    ...RAW,
    connection: 'close',
    'content-length': CONTENT.length,
    ...more,
  });

/** Everything that arrives until the connection ends. */
async function answerOn(socket: Socket): Promise<string> {
  let text = '';
  socket.setEncoding('latin1').on('data', (piece: string) => {
    text += piece;
  });
  await new Promise((resolve) => socket.once('close', resolve));
  return text;
}

/** Descriptors of a daemon that are sockets or files below its scratch directory. */
function transfersOpen({ pid, scratch } = daemon): number {
  const directory = `/proc/${pid}/fd`;
  return readdirSync(directory).filter((fd) => {
    try {
      const path = readlinkSync(join(directory, fd));
      return path.startsWith('socket:') || path.startsWith(scratch);
    } catch {
      return false;
    }
  }).length;
}

describe('is stored whole', () => {
  test.each([
    ['with the head', [CONTENT.length]],
    ['in two pieces', [1, CONTENT.length - 1]],
    ['in unequal pieces', [70_000, 3, 65_536, 1_000_000, CONTENT.length]],
  ])('sent %s', async (name, lengths) => {
    const before = transfersOpen();
    const path = join(daemon.scratch, name);
    const [first = 0, ...others] = lengths;
    const socket = await openRequest(daemon, head(path), CONTENT.subarray(0, first));
    const answer = answerOn(socket);
    let sent = first;
    for (const length of others) {
      // The daemon has read everything and waits for the client.
      await sleep(20);
      socket.write(CONTENT.subarray(sent, sent + length));
      sent += length;
    }
    expect(await answer).toMatch(/^HTTP\/1\.1 200 /);
    expect(CONTENT.equals(readFileSync(path))).toBe(true);
    // A connection of a test before may have been closing.
    await expect.poll(() => transfersOpen()).toBeLessThanOrEqual(before);
  });

  test('by several clients at once', async () => {
    const names = Array.from({ length: 12 }, (_, index) => join(daemon.scratch, `at-once-${index}`));
    const answers = names.map(async (path) => answerOn(await openRequest(daemon, head(path), CONTENT)));
    for (const answer of await Promise.all(answers)) expect(answer).toContain('200 OK');
    for (const path of names) expect(CONTENT.equals(readFileSync(path))).toBe(true);
  });

  test('by several clients to one path: the file is that of one of them, whole', async () => {
    const path = join(daemon.scratch, 'contested');
    const contents = Array.from({ length: 8 }, () => randomBytes(CONTENT.length));
    writeFileSync(path, 'old');
    await Promise.all(
      contents.map(async (content) => answerOn(await openRequest(daemon, head(path), content))),
    );
    const winner = readFileSync(path);
    expect(contents.some((content) => content.equals(winner))).toBe(true);
  });

  test('over an existing file', async () => {
    const path = join(daemon.scratch, 'over');
    writeFileSync(path, randomBytes(6_000_000));
    await answerOn(await openRequest(daemon, head(path), CONTENT));
    expect(CONTENT.equals(readFileSync(path))).toBe(true);
  });

  test('after 100 Continue', async () => {
    const path = join(daemon.scratch, 'asked');
    const socket = await openRequest(daemon, head(path, { expect: '100-continue' }), Buffer.alloc(0));
    await once(socket, 'readable');
    const answer = answerOn(socket);
    socket.write(CONTENT);
    expect(await answer).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /);
    expect(CONTENT.equals(readFileSync(path))).toBe(true);
  });
});

test('the connection is kept for the next request', async () => {
  const path = join(daemon.scratch, 'kept');
  const socket = await openRequest(daemon, head(path, { connection: 'keep-alive' }), CONTENT);
  await once(socket, 'readable');
  const answer = answerOn(socket);
  socket.write('GET /health HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n');
  expect(await answer).toMatch(/^HTTP\/1\.1 200 .*HTTP\/1\.1 204 /s);
});

test('a large upload is counted in the metrics', async () => {
  const bytes = async () => {
    const text = await (await fetch(`${daemon.url}/metrics`, { headers: { accept: 'text/plain' } })).text();
    return Number(/^envd_upload\w*bytes\w* (\d+)/m.exec(text)?.[1]);
  };
  const before = await bytes();
  await answerOn(await openRequest(daemon, head(join(daemon.scratch, 'counted')), CONTENT));
  expect((await bytes()) - before).toBe(CONTENT.length);
});

test('on a full disk 507 is sent at once, also to a client that sends the whole body first', async () => {
  const directory = mountTmpfs('2m');
  const path = join(directory, 'old');
  writeFileSync(path, 'old');
  const before = transfersOpen();
  const early = await openRequest(daemon, head(path), CONTENT.subarray(0, 4_000_000));
  expect(await answerOn(early)).toMatch(/^HTTP\/1\.1 507 /);
  const patient = await openRequest(daemon, head(path), CONTENT);
  expect(await answerOn(patient)).toMatch(/^HTTP\/1\.1 507 /);
  expect(readFileSync(path, 'utf8')).toBe('old');
  expect(readdirSync(directory)).toEqual(['old']);
  await expect.poll(() => transfersOpen()).toBeLessThanOrEqual(before);
});

test('an upload that stalls does not delay the stop of the daemon', async () => {
  await using other = await startDaemon();
  const path = join(other.scratch, 'stopped');
  writeFileSync(path, 'old');
  const before = transfersOpen(other);
  const socket = await openRequest(other, head(path), CONTENT.subarray(0, 2_000_000));
  // The socket, the file and its directory.
  await expect.poll(() => transfersOpen(other)).toBe(before + 3);
  const ended = answerOn(socket);
  await other.stop('SIGTERM');
  await ended;
  expect(readFileSync(path, 'utf8')).toBe('old');
});

/** Writes a byte to its standard output every 0.2 ms, until it is killed. */
const DRIP = `
const { writeSync } = require('node:fs');
for (;;) {
  writeSync(1, 'x');
  for (const until = performance.now() + 0.2; performance.now() < until; );
}`;

test('a client that sends byte by byte does not occupy a pool thread', async () => {
  await using other = await startDaemon({ env: { UV_THREADPOOL_SIZE: '1' } });
  const before = transfersOpen(other);
  const socket = await openRequest(other, head(join(other.scratch, 'slow')), CONTENT.subarray(0, 100_000));
  socket.setNoDelay(true);
  const drip = spawn(process.execPath, ['-e', DRIP], { stdio: ['ignore', socket, 'ignore'] });
  // It is under way when the daemon has the socket, the file and its directory open.
  await until('the upload is under way', () => transfersOpen(other) === before + 3);
  const { filesystem } = connectTo(other.url);
  for (let call = 0; call < 10; call++) await filesystem.stat({ path: other.scratch });
  // It goes on for many minutes, so no call has waited for its end.
  expect(transfersOpen(other)).toBeGreaterThanOrEqual(before + 3);
  expect(drip.exitCode).toBeNull();
  drip.kill('SIGKILL');
  socket.destroy();
});
