import { createHash, randomBytes } from 'node:crypto';
import { closeSync, openSync, readSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { received } from '../../support/clients/bench-files-client.ts';
import {
  BOUNDARY,
  filesUrl,
  MULTIPART,
  openRequest,
  RAW,
  uploadHead,
} from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { growthOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

const SIZE = 2 * 1024 ** 3;
const PIECE = randomBytes(1024 ** 2);
/** By how much a transfer may raise the daemon's memory, in bytes. */
const MOST_ADDED = 64 * 1024 ** 2;

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  // A first transfer loads and compiles code, which must not count.
  const path = join(daemon.scratch, 'first');
  writeFileSync(path, PIECE);
  await fetch(filesUrl(daemon, { path }), { method: 'POST', headers: RAW, body: PIECE });
  await (await fetch(filesUrl(daemon, { path }))).arrayBuffer();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

async function upload(
  path: string,
  headers: Record<string, string>,
  [prefix, suffix]: [string, string],
): Promise<void> {
  const length = SIZE + prefix.length + suffix.length;
  const head = uploadHead(`path=${path}`, { ...headers, 'content-length': length });
  const socket = await openRequest(daemon, head, Buffer.from(prefix));
  const answer = new Promise<string>((resolve) => socket.once('data', (bytes) => resolve(String(bytes))));
  for (let sent = 0; sent < SIZE; sent += PIECE.length) {
    if (!socket.write(PIECE)) await new Promise((resolve) => socket.once('drain', resolve));
  }
  socket.write(suffix);
  expect(await answer).toMatch(/^HTTP\/1\.1 200 /);
  socket.destroy();
}

/** Whether the file consists of repetitions of the piece. */
function isRight(path: string): boolean {
  const file = openSync(path, 'r');
  const buffer = Buffer.alloc(PIECE.length);
  try {
    for (let at = 0; at < SIZE; at += PIECE.length) {
      readSync(file, buffer, 0, buffer.length, at);
      if (!buffer.equals(PIECE)) return false;
    }
    return statSync(path).size === SIZE;
  } finally {
    closeSync(file);
  }
}

const form: [string, string] = [
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n`,
  `\r\n--${BOUNDARY}--\r\n`,
];
const digest = createHash('sha256').update(form[0]);
for (let at = 0; at < SIZE; at += PIECE.length) digest.update(PIECE);
digest.update(form[1]);
const contentDigest = { 'content-digest': `sha-256=:${digest.digest('base64')}:` };

test.each<[string, Record<string, string>, [string, string]]>([
  ['raw', RAW, ['', '']],
  ['as a form with a digest', { ...MULTIPART, ...contentDigest }, form],
])('an upload of 2 GiB, %s, needs little memory', async (_, headers, around) => {
  needs('room for 2 GiB');
  const path = join(daemon.scratch, 'large');
  const bytes = await growthOf(daemon.pid, () => upload(path, headers, around));
  expect(isRight(path)).toBe(true);
  rmSync(path);
  expect(bytes).toBeLessThan(MOST_ADDED);
});

test('a download of 2 GiB needs little memory', async () => {
  const path = join(daemon.scratch, 'sparse');
  writeFileSync(path, '');
  truncateSync(path, SIZE);
  const request = `GET /files?path=${path} HTTP/1.1\r\nhost: test\r\n\r\n`;
  const bytes = await growthOf(daemon.pid, () => received(daemon.port, request, SIZE));
  expect(bytes).toBeLessThan(MOST_ADDED);
});
