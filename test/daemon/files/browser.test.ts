import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { runInBrowser } from '../../support/clients/browser.ts';
import { filesUrl } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

const TOKEN = 'token-of-the-browser-test';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  const init = await fetch(`${daemon.url}/init`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ accessToken: TOKEN }),
  });
  expect(init.status).toBe(204);
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** What the page runs: raw and form uploads, and downloads; each is preceded by a preflight. */
const SCRIPT = `
async function run(upload, form, token) {
  const headers = { 'X-Access-Token': token };
  const content = new Uint8Array(3_000_000).map((_, index) => index * 7);
  const raw = await fetch(upload, {
    method: 'POST',
    headers: { ...headers, 'Content-Type': 'application/octet-stream', 'X-Metadata-From': 'browser' },
    body: content,
  });
  const data = new FormData();
  data.append('file', new Blob(['of a form']), 'na"me é.txt');
  const posted = await fetch(form, { method: 'POST', headers, body: data });
  const download = await fetch(upload, { headers });
  const bytes = new Uint8Array(await download.arrayBuffer());
  const parts = [];
  let etag;
  // With the browser's copy, which is coded, so that all is sent; and without.
  for (const cache of ['default', 'no-store']) {
    const part = await fetch(upload, { cache, headers: { ...headers, Range: 'bytes=1-3' } });
    etag = part.headers.get('ETag');
    parts.push([part.status, [...new Uint8Array(await part.arrayBuffer()).subarray(0, 3)]]);
  }
  // An interrupted download continues if the file has not changed. The gzip response, which browsers accept when they
  // ask for no range, has another ETag, which does not match here.
  const rest = { ...headers, Range: 'bytes=2999990-', 'Want-Repr-Digest': 'sha-256=1' };
  const resumed = await fetch(upload, { cache: 'no-store', headers: { ...rest, 'If-Range': etag } });
  const restarted = await fetch(upload, { cache: 'no-store', headers: { ...rest, 'If-Range': '"another"' } });
  const shown = ['Accept-Ranges', 'Content-Disposition', 'Content-Range', 'ETag', 'Repr-Digest'];
  const refused = await fetch(upload, { headers: { 'X-Access-Token': 'another' } });
  return {
    raw: [raw.status, await raw.json()],
    posted: [posted.status, await posted.json()],
    download: [download.status, bytes.length === content.length && bytes.every((byte, i) => byte === content[i])],
    parts,
    resumed: [resumed.status, [...new Uint8Array(await resumed.arrayBuffer())]],
    restarted: [restarted.status, (await restarted.arrayBuffer()).byteLength],
    shown: shown.map((name) => resumed.headers.get(name)),
    refused: refused.status,
  };
}
`;

describe('a browser', () => {
  test('uploads and downloads from a page of another origin', async () => {
    needs('chromium');
    const [path, form] = [join(daemon.scratch, 'browser/raw'), join(daemon.scratch, 'browser/form')];
    const parameters = [filesUrl(daemon, { path }), filesUrl(daemon, { path: form }), TOKEN];
    const call = `run(${parameters.map((value) => JSON.stringify(value)).join()})`;
    const result = await runInBrowser(`${SCRIPT}${call}`);
    const metadata = { from: 'browser' };
    const content = Array.from({ length: 3_000_000 }, (_, index) => (index * 7) & 0xff);
    expect(result).toEqual({
      raw: [200, [{ path, name: 'raw', type: 'file', metadata }]],
      posted: [200, [{ path: form, name: 'form', type: 'file' }]],
      download: [200, true],
      parts: [
        [200, [0, 7, 14]],
        [206, [7, 14, 21]],
      ],
      resumed: [206, content.slice(-10)],
      restarted: [200, 3_000_000],
      shown: [
        'bytes',
        'inline; filename=raw',
        'bytes 2999990-2999999/3000000',
        expect.stringMatching(/^"[\w-]+"$/),
        `sha-256=:${createHash('sha256').update(Buffer.from(content)).digest('base64')}:`,
      ],
      refused: 401,
    });
    expect(readFileSync(form, 'utf8')).toBe('of a form');
  });
});

describe('curl', () => {
  beforeEach(() => needs('curl'));
  const curl = (...args: string[]) =>
    execFileSync('curl', ['-sS', '--fail-with-body', '-H', `X-Access-Token: ${TOKEN}`, ...args], {
      encoding: 'utf8',
    });
  const sha256 = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

  test('uploads, and resumes a partial download', () => {
    const [source, copy, path] = ['source', 'copy', 'on-the-guest'].map((name) => join(daemon.scratch, name));
    writeFileSync(String(source), randomBytes(5_000_000));
    const url = filesUrl(daemon, { path: String(path) });
    curl('-H', 'Content-Type: application/octet-stream', '--data-binary', `@${source}`, url);
    curl('-o', String(copy), url);
    expect(sha256(String(copy))).toBe(sha256(String(source)));
    for (const had of [0, 1, 1_234_567, 4_999_999]) {
      curl('-o', String(copy), url);
      truncateSync(String(copy), had);
      const said = curl('-C', '-', '-o', String(copy), '-w', '%{http_code} %{size_download}', url);
      expect(said).toBe(had === 0 ? '200 5000000' : `206 ${5_000_000 - had}`);
      expect(sha256(String(copy))).toBe(sha256(String(source)));
    }
  });

  test('uploads a form with many files', () => {
    const names = ['one', 'two'].map((name) => join(daemon.scratch, `form-${name}`));
    for (const name of names) writeFileSync(name, name);
    const parts = names.flatMap((name) => ['-F', `file=@${name};filename=${name}.up`]);
    curl(...parts, filesUrl(daemon, {}));
    for (const name of names) expect(readFileSync(`${name}.up`, 'utf8')).toBe(name);
  });
});
