import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { filesUrl, get, openRequest } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
let at: (name: string) => string;
beforeAll(async () => {
  daemon = await startDaemon();
  mkdirSync(join(daemon.scratch, 'files'));
  at = (name) => join(daemon.scratch, 'files', name);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

function write(name: string, content: string | Buffer): string {
  writeFileSync(at(name), content);
  return at(name);
}

const BIG = randomBytes(3_000_000);

async function failure(response: Response): Promise<unknown> {
  expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8');
  expect(response.headers.get('cache-control')).toBe('no-store');
  return response.json();
}

/** Descriptors of the daemon that are open on `path`. */
function descriptorsOn(path: string): number {
  const directory = `/proc/${daemon.pid}/fd`;
  return readdirSync(directory).filter((fd) => {
    try {
      return readlinkSync(join(directory, fd)).startsWith(path);
    } catch {
      return false;
    }
  }).length;
}

describe('a download', () => {
  test('has the content, type and validators of the file', async () => {
    const path = write('test.txt', 'hello');
    utimesSync(path, 1_700_000_000, 1_700_000_000);
    const response = await get(daemon, path);
    expect(response.status).toBe(200);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'text/plain; charset=utf-8',
      'content-disposition': 'inline; filename=test.txt',
      'content-length': '5',
      'last-modified': 'Tue, 14 Nov 2023 22:13:20 GMT',
      'accept-ranges': 'bytes',
      vary: 'Accept-Encoding',
      etag: expect.stringMatching(/^"[\w-]+"$/),
      'cache-control': 'private, no-cache',
      'x-content-type-options': 'nosniff',
    });
    expect(await response.text()).toBe('hello');
  });

  test.each([0, 1, 4096, 128 * 1024, 128 * 1024 + 1, 3_000_000])('of %i bytes is complete', async (size) => {
    const content = BIG.subarray(0, size);
    const path = write('sized', content);
    const plain = await get(daemon, path);
    expect(plain.headers.get('content-length')).toBe(String(size));
    expect(content.equals(await plain.bytes())).toBe(true);
    const coded = await fetch(filesUrl(daemon, { path }), {
      headers: { 'accept-encoding': 'gzip, identity;q=0' },
    });
    expect(coded.headers.get('content-encoding')).toBe('gzip');
    expect(content.equals(await coded.bytes())).toBe(true);
  });

  test('resolves paths below the home directory, and links', async () => {
    symlinkSync(write('target.txt', 'through'), at('link.txt'));
    const response = await get(daemon, at('link.txt'));
    expect(response.headers.get('content-disposition')).toBe('inline; filename=link.txt');
    expect(await response.text()).toBe('through');
    const relative = await get(daemon, 'no-such-file-here');
    expect(await failure(relative)).toEqual({
      code: 404,
      message: "path '/root/no-such-file-here' does not exist",
    });
  });

  test('by HEAD has the headers of GET', async () => {
    const path = write('head.txt', BIG);
    const [head, whole] = await Promise.all([get(daemon, path, {}, 'HEAD'), get(daemon, path)]);
    const expected = Object.fromEntries(whole.headers);
    for (const name of ['date', 'connection', 'keep-alive']) delete expected[name];
    expect(Object.fromEntries(head.headers)).toMatchObject(expected);
    expect(await head.text()).toBe('');
    await whole.body?.cancel();
    const missing = await get(daemon, at('nothing'), {}, 'HEAD');
    expect(missing.status).toBe(404);
    expect(await missing.text()).toBe('');
  });

  test('continues with the open file when its path is replaced', async () => {
    const path = write('replaced', BIG);
    const response = await get(daemon, path);
    const reader = response.body?.getReader();
    const first = (await reader?.read())?.value ?? Buffer.alloc(0);
    renameSync(write('other', Buffer.alloc(10)), path);
    const rest: Uint8Array[] = [first];
    for (let next = await reader?.read(); next && !next.done; next = await reader?.read())
      rest.push(next.value);
    expect(BIG.equals(Buffer.concat(rest))).toBe(true);
  });

  test('of a growing file ends at the announced length', async () => {
    const path = write('growing', BIG);
    const response = await get(daemon, path);
    appendFileSync(path, 'more');
    expect((await response.bytes()).length).toBe(BIG.length);
  });

  test('of a shrinking file closes the connection', async () => {
    const path = write('shrinking', Buffer.alloc(50_000_000));
    const response = await get(daemon, path);
    truncateSync(path, 1000);
    await expect(response.bytes()).rejects.toThrow();
  });

  test('that is interrupted leaves no descriptor open', async () => {
    const path = write('broken-off', Buffer.alloc(50_000_000));
    for (const coding of ['identity', 'gzip']) {
      const query = new URLSearchParams({ path });
      const head = `GET /files?${query} HTTP/1.1\r\nhost: x\r\naccept-encoding: ${coding}\r\n\r\n`;
      const socket = await openRequest(daemon, head, Buffer.alloc(0));
      await new Promise((resolve) => socket.once('data', resolve));
      expect(descriptorsOn(path)).toBe(1);
      socket.destroy();
      await expect.poll(() => descriptorsOn(path)).toBe(0);
    }
    await get(daemon, path, { range: 'bytes=99999999999-' });
    await get(daemon, path, {}, 'HEAD');
    expect((await get(daemon, path, { 'accept-encoding': 'identity;q=0' })).status).toBe(406);
    await expect.poll(() => descriptorsOn(path)).toBe(0);
  });
});

describe('ranges and conditions', () => {
  test('one range is read from memory and from the disk', async () => {
    for (const size of [1000, BIG.length]) {
      const path = write('ranged', BIG.subarray(0, size));
      const response = await get(daemon, path, { range: 'bytes=500-599' });
      expect(response.status).toBe(206);
      expect(response.headers.get('content-range')).toBe(`bytes 500-599/${size}`);
      expect(BIG.subarray(500, 600).equals(await response.bytes())).toBe(true);
    }
  });

  test('several ranges are sent as multipart/byteranges', async () => {
    for (const size of [1000, BIG.length]) {
      const path = write('ranged', BIG.subarray(0, size));
      const response = await get(daemon, path, { range: 'bytes=0-9,100-109,-10' });
      expect(response.status).toBe(206);
      const body = Buffer.from(await response.bytes());
      expect(response.headers.get('content-length')).toBe(String(body.length));
      const boundary = response.headers.get('content-type')?.split('boundary=')[1];
      const parts = body.toString('latin1').split(`\r\n--${boundary}`);
      expect(parts.at(-1)).toBe('--\r\n');
      const ranges = [
        [0, 10],
        [100, 110],
        [size - 10, size],
      ] as const;
      expect(parts.slice(1, -1).map((part) => part.split('\r\n\r\n')[1])).toEqual(
        ranges.map(([start, end]) => BIG.toString('latin1', start, end)),
      );
    }
  });

  test('curl resumes a download', () => {
    needs('curl');
    const path = write('resumed', BIG);
    const partial = write('partial', BIG.subarray(0, 1_234_567));
    execFileSync('curl', ['-sf', '-C', '-', '-o', partial, filesUrl(daemon, { path })]);
    expect(BIG.equals(readFileSync(partial))).toBe(true);
  });

  test('a range outside of the file is 416', async () => {
    const response = await get(daemon, write('short', '12345'), { range: 'bytes=5-' });
    expect(response.headers.get('content-range')).toBe('bytes */5');
    expect(await failure(response)).toEqual({ code: 416, message: 'none of the ranges lies in the file' });
  });

  test('an unchanged file is 304, a changed one is sent', async () => {
    const path = write('cached', 'one');
    const etag = (await get(daemon, path)).headers.get('etag') ?? '';
    const again = await get(daemon, path, { 'if-none-match': etag });
    expect(again.status).toBe(304);
    expect(again.headers.get('etag')).toBe(etag);
    expect(again.headers.get('cache-control')).toBe('private, no-cache');
    expect(again.headers.has('content-length')).toBe(false);
    const same = await get(daemon, path, { range: 'bytes=0-0', 'if-range': etag });
    expect(same.status).toBe(206);
    write('cached', 'two');
    const changed = await get(daemon, path, { 'if-none-match': etag });
    expect(changed.status).toBe(200);
    expect(await changed.text()).toBe('two');
    const whole = await get(daemon, path, { range: 'bytes=0-0', 'if-range': etag });
    expect(whole.status).toBe(200);
    expect((await get(daemon, path, { 'if-match': etag })).status).toBe(412);
  });

  test('responses to ranges and conditions are not coded', async () => {
    const path = write('identity', 'content');
    for (const header of [{ range: 'bytes=0-' }, { 'if-none-match': '"x"' }]) {
      const response = await get(daemon, path, { ...header, 'accept-encoding': 'gzip' });
      expect(response.headers.has('content-encoding')).toBe(false);
      expect(await response.text()).toBe('content');
    }
  });
});

describe('refused downloads', () => {
  test('a directory is refused, and so is an empty path, which is the home directory', async () => {
    const directory = await failure(await get(daemon, daemon.scratch));
    expect(directory).toEqual({ code: 400, message: `path '${daemon.scratch}' is a directory` });
    expect(await failure(await get(daemon, ''))).toEqual({
      code: 400,
      message: "path '/root' is a directory",
    });
  });

  test('a missing file is 404', async () => {
    for (const path of [at('nothing'), join(write('file', ''), 'below')]) {
      expect(await failure(await get(daemon, path))).toEqual({
        code: 404,
        message: `path '${path}' does not exist`,
      });
    }
  });

  test('an unknown user is 401', async () => {
    const url = filesUrl(daemon, { path: 'x', username: 'nobody-knows' });
    expect(await failure(await fetch(url))).toEqual({
      code: 401,
      message: "error looking up user 'nobody-knows': invalid username: 'nobody-knows'",
    });
  });

  test('another user’s home is refused', async () => {
    expect((await get(daemon, '~daemon/x')).status).toBe(400);
  });

  test('pipes, sockets and devices are refused, as reading them could block', async () => {
    execFileSync('mkfifo', [at('pipe')]);
    const server = createServer().listen(at('socket'));
    for (const path of [at('pipe'), at('socket'), '/dev/zero', '/dev/tty']) {
      expect(await failure(await get(daemon, path))).toEqual({
        code: 400,
        message: `path '${path}' is not a regular file`,
      });
    }
    server.close();
  });
});

describe('files that the kernel generates', () => {
  test('in /proc are sent, though their size is 0', async () => {
    const response = await get(daemon, '/proc/version');
    expect(await response.text()).toBe(readFileSync('/proc/version', 'utf8'));
    expect(response.headers.get('content-length')).toBe(String(readFileSync('/proc/version').length));
    expect(response.headers.has('etag')).toBe(false);
  });

  test('in /sys are sent, though their size is too large', async () => {
    const path = '/sys/kernel/mm/transparent_hugepage/enabled';
    expect(await (await get(daemon, path)).text()).toBe(readFileSync(path, 'utf8'));
  });

  test('larger than one read are sent whole', async () => {
    const response = await get(daemon, '/proc/kallsyms', { 'accept-encoding': 'gzip' });
    expect((await response.text()).length).toBe(readFileSync('/proc/kallsyms').length);
  });

  test('that block until there is content are not waited for', async () => {
    needs('kernel log');
    const response = await get(daemon, '/proc/kmsg');
    expect(response.status).toBe(200);
    await response.body?.cancel();
  });
});

test('a gzip response decodes to the file', async () => {
  needs('curl');
  const content = 'compressible '.repeat(100_000);
  const path = write('gzip.txt', content);
  const query = new URLSearchParams({ path });
  const raw = execFileSync('curl', ['-s', '-H', 'accept-encoding: gzip', `${daemon.url}/files?${query}`], {
    maxBuffer: 1e8,
  });
  expect(raw.length).toBeLessThan(content.length / 10);
  expect(gunzipSync(raw).toString()).toBe(content);
});
