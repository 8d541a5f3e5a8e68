import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BOUNDARY, MULTIPART, openRequest } from '../../support/clients/files-client.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
let home: string;
beforeAll(async () => {
  daemon = await startDaemon();
  home = join(daemon.scratch, 'home');
  mkdirSync(home);
  const response = await fetch(`${daemon.url}/init`, {
    method: 'POST',
    body: JSON.stringify({ defaultWorkdir: home }),
  });
  expect(response.status).toBe(204);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** Sends a request byte for byte; returns the status of the response, 0 when the connection ends without one. */
async function send(head: string, body: Buffer): Promise<number> {
  const socket = await openRequest(daemon, head, body);
  let answer = '';
  socket.setEncoding('latin1').on('data', (chunk) => {
    answer += chunk;
  });
  await new Promise((resolve) => socket.once('close', resolve));
  return Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0);
}

const NEVER = [500, 502, 503, 504];
const token = fc.constantFrom(
  '\r\n',
  '--',
  BOUNDARY,
  `--${BOUNDARY}`,
  `--${BOUNDARY}--`,
  '\r\n\r\n',
  '"',
  ';',
  '%22',
);
const header = fc.constantFrom(
  'Content-Disposition: form-data; name="file"; filename="a"',
  'Content-Disposition: form-data; name="file"',
  'Content-Disposition: form-data; name="constructor"',
  'Content-Disposition: form-data; name="other"; filename="../x/y"',
  'Content-Disposition: attachment',
  'Content-Type: application/json',
  'Content-Transfer-Encoding: base64',
  'Content-Disposition: form-data; name="file"; filename="\u0000"',
  'Content-Disposition: form-data; name="file"; filename=".."',
  ': empty',
);
const piece = fc.oneof(token, header, fc.string({ unit: 'binary', maxLength: 40 }));
/** Parts that are mostly well-formed, so that they pass the first checks of the parser. */
const part = fc
  .tuple(fc.array(header, { maxLength: 3 }), fc.array(piece, { maxLength: 4 }))
  .map(([headers, content]) => `--${BOUNDARY}\r\n${headers.join('\r\n')}\r\n\r\n${content.join('')}\r\n`);
const body = fc
  .array(fc.oneof({ weight: 3, arbitrary: part }, piece), { maxLength: 6 })
  .chain((pieces) =>
    fc.constantFrom('', `--${BOUNDARY}--\r\n`).map((end) => Buffer.from(pieces.join('') + end)),
  );

test('any multipart body gets a response other than 500, and leaves no stray file', async () => {
  await fc.assert(
    fc.asyncProperty(body, fc.boolean(), async (content, chunked) => {
      const framing = chunked ? 'transfer-encoding: chunked' : `content-length: ${content.length}`;
      const framed = chunked
        ? Buffer.concat([
            Buffer.from(content.length > 0 ? `${content.length.toString(16)}\r\n` : ''),
            content,
            Buffer.from(content.length > 0 ? '\r\n0\r\n\r\n' : '0\r\n\r\n'),
          ])
        : content;
      const head = `POST /files HTTP/1.1\r\nhost: x\r\ncontent-type: ${MULTIPART['content-type']}\r\n${framing}\r\nconnection: close\r\n\r\n`;
      const status = await send(head, framed);
      expect(status).toBeGreaterThanOrEqual(200);
      expect(NEVER).not.toContain(status);
      rmSync('/root/a', { force: true });
    }),
    { numRuns: 400 },
  );
  expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
  expect(readdirSync(home)).toEqual([]);
});

test('any headers get a response other than 500', async () => {
  const value = fc.oneof(
    fc.string({ unit: 'grapheme-ascii', maxLength: 60 }),
    fc.constantFrom(
      'gzip',
      'bytes=0-',
      'bytes=0-0,-1',
      '"x"',
      '*',
      'identity;q=0',
      'W/"',
      'sha-256=:AAAA:',
      'sha-256=9, sha-512=1',
      'multipart/form-data',
    ),
    fc.constantFrom(
      'multipart/form-data; boundary=',
      'multipart/form-data; boundary="',
      'application/octet-stream',
    ),
  );
  const name = fc.constantFrom(
    'accept-encoding',
    'range',
    'if-range',
    'if-none-match',
    'if-match',
    'if-modified-since',
    'if-unmodified-since',
    'content-type',
    'content-encoding',
    'x-metadata-a',
    'x-metadata-',
    'x-access-token',
    'content-digest',
    'repr-digest',
    'want-repr-digest',
  );
  const method = fc.constantFrom('GET', 'HEAD', 'POST');
  const path = fc.constantFrom('/etc/hostname', home, '/proc/self/status', '~x', '', 'missing', '%00', '%ff');
  await fc.assert(
    fc.asyncProperty(
      method,
      path,
      fc.array(fc.tuple(name, value), { maxLength: 4 }),
      async (verb, where, fields) => {
        const target = verb === 'POST' ? `${home}/written` : where;
        const lines = fields.map(([field, text]) => `${field}: ${text}\r\n`).join('');
        const head = `${verb} /files?path=${target} HTTP/1.1\r\nhost: x\r\n${lines}content-length: 4\r\nconnection: close\r\n\r\n`;
        const status = await send(head, Buffer.from('body'));
        expect(status).toBeGreaterThanOrEqual(200);
        expect(NEVER).not.toContain(status);
      },
    ),
    { numRuns: 600 },
  );
  rmSync(join(home, 'written'), { force: true });
  expect(readdirSync(home)).toEqual([]);
});
