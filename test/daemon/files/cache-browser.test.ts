import { randomBytes } from 'node:crypto';
import { utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { signFile } from '../../../src/conformance/suite/sign-file.ts';
import { runInBrowser } from '../../support/clients/browser.ts';
import { filesUrl } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

const TOKEN = 'token-of-the-cache-test';
const SIZE = 33_554_432;
/** So long ago that a browser takes the file for fresh if it may guess. */
const OLD = new Date('2020-01-01T00:00:00Z');

let open: TestDaemon;
let closed: TestDaemon;
beforeAll(async () => {
  [open, closed] = await Promise.all([startDaemon(), startDaemon()]);
  const body = JSON.stringify({ accessToken: TOKEN });
  expect((await fetch(`${closed.url}/init`, { method: 'POST', body })).status).toBe(204);
});
afterAll(async () => {
  await Promise.all([open, closed].map((daemon) => daemon[Symbol.asyncDispose]()));
});
beforeEach(() => needs('chromium'));

/** The ways in which a page may read files. */
const WAYS = {
  'without a token': (path: string) => [open, filesUrl(open, { path }), {}] as const,
  'with the token': (path: string) =>
    [closed, filesUrl(closed, { path }), { 'X-Access-Token': TOKEN }] as const,
  'by a signed URL': (path: string) => {
    const signature = signFile({ path, operation: 'read', username: '', token: TOKEN });
    return [closed, filesUrl(closed, { path, signature }), {}] as const;
  },
};

/** Each entry of a visit is what a page gets: how many bytes, and which ones they are. */
const SCRIPT = `
async function get(url, headers, range) {
  const response = await fetch(url, { headers: { ...headers, ...(range && { Range: range }) } });
  const bytes = new Uint8Array(await response.arrayBuffer());
  return [response.status, bytes.length, String.fromCharCode(bytes[0], bytes.at(-1))];
}
async function visit(url, headers, ranges) {
  const seen = [await get(url, headers), await get(url, headers)];
  for (const range of ranges) seen.push(await get(url, headers, range), await get(url, headers));
  await fetch('/change', { method: 'POST' });
  const changed = [await get(url, headers, ranges[0]), await get(url, headers), await get(url, headers)];
  return { seen, changed };
}
`;

/** Writes letters, which are coded on their way; or, as an image has them, some letters and then what does not shrink. */
function write(path: string, letter: string, size: number): void {
  const rest = path.endsWith('.png') ? randomBytes(size - 4) : Buffer.alloc(size - 4, letter);
  writeFileSync(path, Buffer.concat([Buffer.from(`<${letter}${letter}`), rest, Buffer.from('>')]));
  utimesSync(path, OLD, OLD);
}

interface Seen {
  readonly seen: readonly unknown[];
  readonly changed: readonly unknown[];
}

async function visit(way: keyof typeof WAYS, name: string, ranges: readonly string[]) {
  const path = join(open.scratch, name);
  const [daemon, url, headers] = WAYS[way](path);
  write(path, 'a', SIZE);
  const parameters = [url, headers, ranges].map((value) => JSON.stringify(value)).join();
  const change = () => write(path, 'b', SIZE + 1000);
  const before = daemon.log.length;
  const seen = (await runInBrowser(`${SCRIPT}visit(${parameters})`, { '/change': change })) as Seen;
  const downloads = daemon.log.slice(before).filter(({ operation }) => operation === 'GET /files');
  return { ...seen, statuses: downloads.map(({ status }) => status) };
}

describe.each(Object.keys(WAYS) as (keyof typeof WAYS)[])('a page that reads a file %s', (way) => {
  const whole = [200, SIZE, '<>'];
  const changed = Array(3).fill([200, SIZE + 1000, '<>']);

  test('gets all of a range of which it has a coded copy', async () => {
    // Each range is asked for with a copy. Chromium asks for less than the page does, so it gets all.
    const seen = await visit(way, 'coded.txt', [
      `bytes=0-${SIZE + 999}`,
      'bytes=-10',
      'bytes=20000000-20000009',
    ]);
    expect(seen).toMatchObject({ seen: Array(8).fill(whole), changed });
    expect(seen.statuses.slice(0, 2)).toEqual([200, 304]);
  });

  test('gets all of a range of which it has an uncoded copy', async () => {
    const seen = await visit(way, 'uncoded.png', [`bytes=0-${SIZE + 999}`, 'bytes=1-2']);
    const [all, part] = [
      [206, SIZE, '<>'],
      [206, 2, 'aa'],
    ];
    expect(seen).toMatchObject({ seen: [whole, whole, all, whole, part, whole], changed });
    expect(seen.statuses.slice(0, 6)).toEqual([200, 304, 304, 304, 304, 304]);
  });
});
