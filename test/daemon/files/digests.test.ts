import { createHash, randomBytes } from 'node:crypto';
import {
  existsSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  filePart,
  get,
  MULTIPART,
  multipartBody,
  openRequest,
  post,
  uploadHead,
  uploadRaw,
} from '../../support/clients/files-client.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

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

const field = (content: Buffer | string, algorithm: 'sha-256' | 'sha-512' = 'sha-256') =>
  `${algorithm}=:${createHash(algorithm.replace('-', '')).update(content).digest('base64')}:`;

async function refusal(response: Response): Promise<string> {
  const { code, message } = (await response.json()) as { code: number; message: string };
  expect([response.status, code]).toEqual([400, 400]);
  return message;
}

describe('an upload with a digest', () => {
  const content = randomBytes(3_000_000);

  test.each(['content-digest', 'repr-digest'])('is stored when %s matches the body', async (name) => {
    const response = await uploadRaw(daemon, at('x'), content, { [name]: field(content) });
    expect(response.status).toBe(200);
    expect(readFileSync(at('x')).equals(content)).toBe(true);
  });

  test.each(['content-digest', 'repr-digest'])(
    'is refused and changes nothing when %s does not match',
    async (name) => {
      writeFileSync(at('old'), 'old');
      const { ino } = statSync(at('old'));
      for (const file of ['old', 'new/deep']) {
        const message = await refusal(await uploadRaw(daemon, at(file), content, { [name]: field('other') }));
        expect(message).toBe(`${name} is '${field('other')}', but the received body has '${field(content)}'`);
      }
      expect(readFileSync(at('old'), 'utf8')).toBe('old');
      expect(statSync(at('old')).ino).toBe(ino);
      expect(readdirSync(directory)).toEqual(['old']);
    },
  );

  test('is checked against every digest in its headers', async () => {
    const headers = {
      'content-digest': `${field('x')}, ${field('x', 'sha-512')};q=1`,
      'repr-digest': field('x'),
    };
    expect((await uploadRaw(daemon, at('x'), 'x', headers)).status).toBe(200);
    const wrong = { ...headers, 'content-digest': `${field('x')},${field('y', 'sha-512')}` };
    expect(await refusal(await uploadRaw(daemon, at('x'), 'x', wrong))).toContain('sha-512');
    expect(
      await refusal(await uploadRaw(daemon, at('x'), 'x', { ...headers, 'repr-digest': field('y') })),
    ).toContain('repr-digest');
  });

  test('may be empty', async () => {
    expect((await uploadRaw(daemon, at('x'), '', { 'content-digest': field('') })).status).toBe(200);
    await refusal(await uploadRaw(daemon, at('y'), '', { 'content-digest': field('x') }));
    expect(existsSync(at('y'))).toBe(false);
  });

  test('with a content coding is checked before decoding', async () => {
    const coded = gzipSync(content);
    for (const name of ['content-digest', 'repr-digest']) {
      const headers = { 'content-encoding': 'gzip', [name]: field(coded) };
      expect((await uploadRaw(daemon, at('x'), coded, headers)).status).toBe(200);
      expect(readFileSync(at('x')).equals(content)).toBe(true);
      await refusal(await uploadRaw(daemon, at('y'), coded, { ...headers, [name]: field(content) }));
    }
    // Bytes after the end of the gzip stream are part of the body.
    const padded = Buffer.concat([coded, Buffer.alloc(200_000)]);
    const headers = { 'content-encoding': 'gzip', 'content-digest': field(coded) };
    await refusal(await uploadRaw(daemon, at('y'), padded, headers));
    expect(readdirSync(directory)).toEqual(['x']);
  });

  test('with several files is checked as a whole', async () => {
    const body = multipartBody([filePart('a', content), filePart('b', 'b')]);
    const wrong = { ...MULTIPART, 'content-digest': field(content) };
    const parts = (names: readonly string[]) => multipartBody(names.map((name) => filePart(at(name), name)));
    await refusal(await post(daemon, {}, wrong, parts(['a', 'b'])));
    expect(readdirSync(directory)).toEqual([]);
    const right = { ...MULTIPART, 'content-digest': field(body) };
    expect((await post(daemon, { path: at('c') }, right, multipartBody([filePart('a', 'a')]))).status).toBe(
      400,
    );
    const both = parts(['a', 'b']);
    expect((await post(daemon, {}, { ...MULTIPART, 'content-digest': field(both) }, both)).status).toBe(200);
    expect(readdirSync(directory)).toEqual(['a', 'b']);
    // The epilogue belongs to no part, but to the body.
    const longer = Buffer.concat([parts(['d']), Buffer.alloc(300_000, 'e')]);
    await refusal(await post(daemon, {}, { ...MULTIPART, 'content-digest': field(parts(['d'])) }, longer));
    expect((await post(daemon, {}, { ...MULTIPART, 'content-digest': field(longer) }, longer)).status).toBe(
      200,
    );
  });

  test('is refused when a path is repeated or there are more than 255 files', async () => {
    const twice = multipartBody([filePart(at('a'), '1'), filePart(at('a'), '2')]);
    const digest = (body: Buffer) => ({ ...MULTIPART, 'content-digest': field(body) });
    expect(await refusal(await post(daemon, {}, digest(twice), twice))).toContain('more than once');
    const many = multipartBody(Array.from({ length: 300 }, (_, index) => filePart(at(`m${index}`), 'm')));
    expect(await refusal(await post(daemon, {}, digest(many), many))).toContain('at most 255 files');
    expect(readdirSync(directory)).toEqual([]);
  });

  test('is stored when its algorithm is unknown, and refused when the digest is malformed', async () => {
    for (const value of ['md5=:AAAA:', 'crc32c=:AAAA:, unixsum=:AA==:']) {
      expect((await uploadRaw(daemon, at('x'), 'x', { 'content-digest': value })).status).toBe(200);
    }
    for (const value of ['sha-256', 'sha-256=abc', 'sha-256=:%%:', `${field('x')},`, 'SHA-256=:AAAA:']) {
      const message = await refusal(await uploadRaw(daemon, at('y'), 'x', { 'content-digest': value }));
      expect(message).toContain('content-digest is malformed');
    }
    expect(existsSync(at('y'))).toBe(false);
  });

  test('keeps the old file when it is interrupted', async () => {
    writeFileSync(at('x'), 'old');
    const head = uploadHead(new URLSearchParams({ path: at('x') }).toString(), {
      'content-type': 'application/octet-stream',
      'content-length': 1000,
      'content-digest': field('half'),
    });
    const socket = await openRequest(daemon, head, Buffer.from('half'));
    const logged = daemon.log.length;
    socket.destroy();
    const isLogged = () => daemon.log.slice(logged).some(({ operation }) => operation === 'POST /files');
    await until('the upload is logged', isLogged);
    expect(readFileSync(at('x'), 'utf8')).toBe('old');
  });
});

describe('a download with Want-Repr-Digest', () => {
  const want = { 'want-repr-digest': 'sha-256=5' };

  test('has the digest of the whole file, for any size, range or method', async () => {
    for (const size of [0, 5, 128 * 1024, 128 * 1024 + 1, 3_000_000]) {
      const content = randomBytes(size);
      writeFileSync(at('x'), content);
      for (const method of ['GET', 'HEAD']) {
        const whole = await get(daemon, at('x'), want, method);
        expect(whole.headers.get('repr-digest')).toBe(field(content));
        const body = Buffer.from(await whole.arrayBuffer());
        expect(body.equals(method === 'GET' ? content : Buffer.alloc(0))).toBe(true);
      }
      if (size === 0) continue;
      const part = await get(daemon, at('x'), { ...want, range: 'bytes=1-2' });
      expect([part.status, part.headers.get('repr-digest')]).toEqual([206, field(content)]);
      expect(Buffer.from(await part.arrayBuffer()).equals(content.subarray(1, 3))).toBe(true);
    }
  });

  test('is sent without coding unless the client excludes that', async () => {
    writeFileSync(at('x.txt'), 'text');
    const plain = await get(daemon, at('x.txt'), { ...want, 'accept-encoding': 'gzip' });
    expect(plain.headers.get('content-encoding')).toBeNull();
    expect(plain.headers.get('repr-digest')).toBe(field('text'));
    const coded = await get(daemon, at('x.txt'), { ...want, 'accept-encoding': 'gzip, identity;q=0' });
    expect(coded.headers.get('content-encoding')).toBe('gzip');
    expect(coded.headers.get('repr-digest')).toBeNull();
    expect(await coded.text()).toBe('text');
  });

  test.each([
    ['sha-512=10, sha-256=1', 'sha-512'],
    ['md5=10, sha-256=1', 'sha-256'],
    ['sha-512=3, sha-256=3', 'sha-256'],
    ['sha-256=0', null],
    ['md5=10', null],
    ['sha-256', null],
    ['sha-256=11', null],
  ] as const)('%s: the digest is %s', async (wanted, algorithm) => {
    writeFileSync(at('x'), 'x');
    const response = await get(daemon, at('x'), { 'want-repr-digest': wanted });
    expect(response.headers.get('repr-digest')).toBe(algorithm && field('x', algorithm));
  });

  test('has no digest without the header, with 304 or with 416', async () => {
    writeFileSync(at('x'), 'x');
    const plain = await get(daemon, at('x'));
    const etag = String(plain.headers.get('etag'));
    const unmodified = await get(daemon, at('x'), { ...want, 'if-none-match': etag });
    const beyond = await get(daemon, at('x'), { ...want, range: 'bytes=9-' });
    for (const response of [plain, unmodified, beyond])
      expect(response.headers.get('repr-digest')).toBeNull();
    expect([unmodified.status, beyond.status]).toEqual([304, 416]);
  });

  test('stops hashing when the client disconnects', async () => {
    writeFileSync(at('huge'), '');
    // Large enough to take minutes.
    truncateSync(at('huge'), 512 * 1024 ** 3);
    const query = new URLSearchParams({ path: at('huge') });
    const head = `HEAD /files?${query} HTTP/1.1\r\nhost: test\r\nwant-repr-digest: sha-256=1\r\n\r\n`;
    const socket = await openRequest(daemon, head, Buffer.alloc(0));
    const isOpen = () =>
      readdirSync(`/proc/${daemon.pid}/fd`).some(
        (fd) => linkOf(`/proc/${daemon.pid}/fd/${fd}`) === at('huge'),
      );
    await expect.poll(isOpen).toBe(true);
    socket.destroy();
    await expect.poll(isOpen).toBe(false);
    expect(daemon.log.filter(({ msg }) => msg === 'operation failed')).toEqual([]);
  });
});

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return ''; // Already closed.
  }
}
