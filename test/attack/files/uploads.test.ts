import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readdirSync, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { closing } from '../../support/clients/closing.ts';
import {
  BOUNDARY,
  filePart,
  MULTIPART,
  multipartBody,
  openRequest,
  post,
  RAW,
  uploadHead,
  uploadParts,
} from '../../support/clients/files-client.ts';
import { growthOf } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

const MIB = 1024 * 1024;

let daemon: TestDaemon;
let directory: string;
const at = (name: string) => join(directory, name);

beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  directory = scratch();
});

const messageOf = async (response: Response) => ((await response.json()) as { message: string }).message;

async function isAnswering({ url }: TestDaemon): Promise<boolean> {
  return (await fetch(`${url}/health`)).status === 204;
}

/** A body of `number` parts, each with this content, which includes the headers. */
function manyParts(number: number, content: string): Buffer<ArrayBuffer> {
  const part = `--${BOUNDARY}\r\n${content}\r\n`;
  return Buffer.concat([Buffer.alloc(part.length * number, part), Buffer.from(`--${BOUNDARY}--\r\n`)]);
}

describe('a multipart body', () => {
  test.each([
    ['that are skipped', 413, 'Content-Disposition: form-data; name="x"\r\n\r\n'],
    ['without a name', 413, 'Content-Type: text/plain\r\n\r\nx'],
    ['without headers', 413, '\r\n'],
    ['without anything', 413, ''],
    ['to one path', 400, 'Content-Disposition: form-data; name="file"; filename="/dev/null"\r\n\r\n'],
  ])('of a million small parts %s is refused', async (_name, expected, content) => {
    await using victim = await startDaemon();
    const body = manyParts(1_000_000, content);
    let status = 0;
    const growth = await growthOf(victim.pid, async () => {
      ({ status } = await post(victim, {}, MULTIPART, body));
    });
    expect(status).toBe(expected);
    expect(growth).toBeLessThan(100 * MIB);
    expect(await isAnswering(victim)).toBe(true);
  });

  test('of more than 10,000 parts is 413, and the files that are stored are whole', async () => {
    const skipped = manyParts(9400, 'Content-Disposition: form-data; name="x"\r\n\r\n');
    for (const [number, status, kept] of [
      [600, 200, 600],
      [601, 413, 512],
    ] as const) {
      const parts = Array.from({ length: number }, (_, index) =>
        filePart(at(`${status}/${index}`), `content ${index}`),
      );
      const files = multipartBody(parts).subarray(0, -`--${BOUNDARY}--\r\n`.length);
      const response = await post(daemon, {}, MULTIPART, Buffer.concat([files, skipped]));
      expect(response.status).toBe(status);
      if (status === 413) expect(await messageOf(response)).toBe('multipart body has more than 10000 parts');
      const names = readdirSync(at(`${status}`));
      expect(names).toHaveLength(kept);
      for (const name of names) {
        expect(readFileSync(at(`${status}/${name}`), 'utf8')).toBe(`content ${name}`);
      }
    }
  });

  test('of too many parts stores no file from before the limit when few precede it', async () => {
    const file = multipartBody([filePart(at('f'), 'x')]);
    const end = `--${BOUNDARY}--\r\n`.length;
    const body = Buffer.concat([file.subarray(0, -end), manyParts(20_000, '\r\n')]);
    expect((await post(daemon, {}, MULTIPART, body)).status).toBe(413);
    expect(readdirSync(directory)).toEqual([]);
  });

  test('of 250 files, 20 times at once, uses a bounded number of descriptors', async () => {
    await using victim = await startDaemon();
    const [uploads, files] = [20, 250];
    const descriptors = () => readdirSync(`/proc/${victim.pid}/fd`).length;
    const kept = () =>
      readdirSync(directory, { recursive: true }).filter((path) => String(path).includes('/'));
    const end = `--${BOUNDARY}--\r\n`;
    const before = descriptors();
    const sockets = await Promise.all(
      Array.from({ length: uploads }, (_, upload) => {
        const names = Array.from({ length: files }, (_, index) => at(`${upload}/${index}`));
        const body = multipartBody(names.map((name) => filePart(name, 'x')));
        const head = uploadHead('', { ...MULTIPART, 'content-length': body.length });
        return openRequest(victim, head, body.subarray(0, -end.length));
      }),
    );
    // The last part of each body is incomplete.
    // A part holds two descriptors: of its directory and of its file.
    let peak = 0;
    const received = () => {
      const held = descriptors() - before;
      peak = Math.max(peak, held);
      return kept().length + held / 2 >= uploads * (files - 1);
    };
    await until('all have been received', received);
    expect(peak).toBeLessThan(4096 + 10 * uploads);
    // Files were held back; an upload that finds the number used up commits all of its own.
    expect(peak).toBeGreaterThan(1000);
    const answers = sockets.map((socket) => once(socket, 'data'));
    for (const socket of sockets) socket.write(end);
    for (const [answer] of await Promise.all(answers)) expect(String(answer)).toMatch(/^HTTP\/1\.1 200 /);
    expect(kept()).toHaveLength(uploads * files);
    for (const socket of sockets) socket.destroy();
  });

  test('is read no faster than it is written', async () => {
    await using victim = await startDaemon();
    const pipe = at('pipe');
    execFileSync('mkfifo', [pipe]);
    const reader = openSync(pipe, 'r+');
    onTestFinished(() => closeSync(reader));
    // The first part is more than the pipe holds, so that the write blocks.
    const end = `--${BOUNDARY}--\r\n`.length;
    const [first, small] = [
      filePart(pipe, Buffer.alloc(200_000)),
      filePart(at('x'), Buffer.alloc(100_000)),
    ].map((part) => multipartBody([part]).subarray(0, -end));
    const growth = await growthOf(victim.pid, async () => {
      const head = uploadHead('', { ...MULTIPART, 'content-length': 500 * MIB });
      const socket = await openRequest(victim, head, first ?? Buffer.alloc(0));
      onTestFinished(() => void socket.destroy());
      let sent = 0;
      while (sent < 400 * MIB && (await isTaken(socket, small ?? Buffer.alloc(0)))) sent += 100_000;
      expect(sent).toBeLessThan(400 * MIB);
    });
    expect(growth).toBeLessThan(100 * MIB);
    expect(await isAnswering(victim)).toBe(true);
  });

  test('with an endless preamble or endless headers uses no memory', async () => {
    await using victim = await startDaemon();
    const start = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="`;
    for (const beginning of ['preamble', start, `${start}/dev/null"\r\nx: `]) {
      const body = Buffer.concat([Buffer.from(beginning), Buffer.alloc(150 * MIB, 'x')]);
      const growth = await growthOf(victim.pid, async () => {
        expect((await post(victim, {}, MULTIPART, body)).status).toBe(400);
      });
      expect(growth, beginning).toBeLessThan(100 * MIB);
    }
  });

  test('with a file name that is too long is refused, and the name is not truncated', async () => {
    for (const length of [5000, 17_000, 90_000]) {
      const name = `${at('x')}${'/.'.repeat(length / 2)}/y`;
      const response = await uploadParts(daemon, [filePart(name, 'content')]);
      expect(response.status, `${length}`).toBe(400);
      expect(await messageOf(response)).toMatch(/^file name of a part is longer than 4095 bytes/);
      expect(readdirSync(directory)).toEqual([]);
    }
  });

  test('with a response that would be too large is refused', async () => {
    const headers = { ...MULTIPART, 'x-metadata-a': 'v'.repeat(4000) };
    const parts = Array.from({ length: 2000 }, (_, index) => filePart(at(`${index}`), 'x'));
    const response = await post(daemon, {}, headers, multipartBody(parts));
    expect(response.status).toBe(413);
    expect(await messageOf(response)).toMatch(/^response .* would exceed 4194304 bytes/);
    expect(readdirSync(directory).length % 256).toBe(0);
  });
});

/** Whether the other side takes `bytes` within two seconds. */
async function isTaken(socket: Socket, bytes: Buffer): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), 2000);
  socket.write(bytes, () => resolve(true));
  return promise.finally(() => clearTimeout(timer));
}

describe('a caller without credentials', () => {
  let guarded: TestDaemon;
  beforeAll(async () => {
    guarded = await startDaemon();
    const body = JSON.stringify({ accessToken: 'secret-of-the-test' });
    expect((await fetch(`${guarded.url}/init`, { method: 'POST', body })).status).toBe(204);
  });
  afterAll(async () => {
    await guarded[Symbol.asyncDispose]();
  });

  test.each([
    ['a type that is none', { 'content-type': 'nonsense' }],
    ['another type', { 'content-type': 'text/plain' }],
    ['an unknown coding', { ...RAW, 'content-encoding': 'br' }],
    ['a digest that cannot be read', { ...RAW, 'content-digest': 'nonsense' }],
    ['metadata that cannot be', { ...RAW, 'x-metadata-a': '\u00fc' }],
    ['no path', RAW],
  ])('gets 401, whatever else is wrong: %s', async (_name, headers) => {
    const response = await post(guarded, { durable: 'nonsense' }, headers, 'x');
    expect(response.status).toBe(401);
    expect(await messageOf(response)).toBe('missing signature query parameter');
  });

  test('gets 401 for a download in an unknown format', async () => {
    expect((await fetch(`${guarded.url}/files?path=/etc&format=zip`)).status).toBe(401);
  });

  test('who sends slowly gets 401, and the connection is closed', async () => {
    const paths = ['/files?path=/x', '/files/compose', '/process.Process/Start', '/unknown'];
    const requests = Array.from({ length: 200 }, async (_, index) => {
      const path = paths[index % paths.length] ?? '';
      const head = `POST ${path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/octet-stream\r\ncontent-length: 100000000\r\n\r\n`;
      const socket = await openRequest(guarded, head, Buffer.from('x'));
      const closed = closing(socket);
      expect(String((await once(socket, 'data'))[0]), path).toMatch(/^HTTP\/1\.1 401 /);
      await closed;
    });
    await Promise.all(requests);
  });

  test('who sends without end gets 401, and the connection is closed', async () => {
    const growth = await growthOf(guarded.pid, async () => {
      const head =
        'POST /files?path=/x HTTP/1.1\r\nhost: a\r\ncontent-type: application/octet-stream\r\ntransfer-encoding: chunked\r\n\r\n';
      const socket = await openRequest(guarded, head, Buffer.alloc(0));
      const closed = new Promise((resolve) => socket.once('close', resolve));
      const answer = once(socket, 'data');
      const chunk = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(MIB), Buffer.from('\r\n')]);
      const send = () => socket.writable && socket.write(chunk, send);
      send();
      expect(String((await answer)[0])).toMatch(/^HTTP\/1\.1 401 /);
      await closed;
    });
    expect(growth).toBeLessThan(100 * MIB);
    expect(existsSync('/x')).toBe(false);
  });

  test('who has sent a whole small body keeps the connection', async () => {
    const head =
      'POST /files?path=/x HTTP/1.1\r\nhost: a\r\ncontent-type: application/octet-stream\r\ncontent-length: 5\r\n\r\n';
    const socket = await openRequest(guarded, head, Buffer.from('12345'));
    expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 401 /);
    socket.write('GET /health HTTP/1.1\r\nhost: a\r\n\r\n');
    expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 204 /);
    socket.destroy();
  });
});
