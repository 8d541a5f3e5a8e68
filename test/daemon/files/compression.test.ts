import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { filesUrl } from '../../support/clients/files-client.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  for (const [name, content] of Object.entries(CONTENTS)) writeFileSync(join(daemon.scratch, name), content);
  for (const [name, content] of Object.entries({ noise: NOISE, text: TEXT })) {
    mkdirSync(join(daemon.scratch, `${name}.d`));
    writeFileSync(join(daemon.scratch, `${name}.d/file`), content);
  }
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const NOISE = randomBytes(3_000_000);
const TEXT = Buffer.alloc(3_000_000, 'compressible text\n');

const CONTENTS = {
  noise: NOISE,
  'noise.txt': NOISE,
  'small-noise': NOISE.subarray(0, 20_000),
  'headed-noise': Buffer.concat([TEXT.subarray(0, 100_000), NOISE]),
  text: TEXT,
  'text.png': TEXT,
  'small-text': TEXT.subarray(0, 20_000),
  'tiny-text': TEXT.subarray(0, 900),
  empty: '',
};

/** Requests a file, or an archive of a directory, as it is answered to `accept`. */
function request(name: string, accept: string, init: RequestInit = {}, format?: string): Promise<Response> {
  const query = { path: join(daemon.scratch, name), ...(format && { format }) };
  return fetch(filesUrl(daemon, query), { ...init, headers: { 'accept-encoding': accept, ...init.headers } });
}

const codingOf = ({ headers }: Response) => headers.get('content-encoding') ?? 'identity';

describe('a client that accepts gzip', () => {
  test.each([
    ['noise', 'identity'],
    ['noise.txt', 'identity'],
    ['small-noise', 'identity'],
    ['headed-noise', 'identity'],
    ['tiny-text', 'identity'],
    ['empty', 'identity'],
    ['text', 'gzip'],
    ['text.png', 'gzip'],
    ['small-text', 'gzip'],
  ] as const)('gets %s as %s, by GET and HEAD', async (name, coding) => {
    const content = Buffer.from(CONTENTS[name]);
    const whole = await request(name, 'gzip, deflate');
    expect(codingOf(whole)).toBe(coding);
    expect(content.equals(await whole.bytes())).toBe(true);
    const head = await request(name, 'gzip, deflate', { method: 'HEAD' });
    const headers = ['content-encoding', 'etag', 'accept-ranges', 'vary'];
    const listed = (response: Response) => headers.map((header) => response.headers.get(header));
    expect(listed(head)).toEqual(listed(whole));
    expect(whole.headers.get('vary')).toBe('Accept-Encoding');
    if (coding === 'gzip') return;
    for (const { headers } of [whole, head])
      expect(headers.get('content-length')).toBe(String(content.length));
    expect(whole.headers.get('etag')).toMatch(/^"/);
  });

  test('keeps its copy of either form, and the meaning of its conditions', async () => {
    for (const name of ['noise', 'text']) {
      const first = await request(name, 'gzip');
      await first.body?.cancel();
      const headers = { 'if-none-match': first.headers.get('etag') ?? '' };
      expect((await request(name, 'gzip', { headers })).status).toBe(304);
    }
  });

  test.each(['gzip, identity;q=0', 'gzip, *;q=0', '*;q=0, gzip;q=0.1'])(
    'but with %s refuses identity gets gzip',
    async (accept) => {
      for (const name of ['noise', 'small-noise', 'tiny-text'] as const) {
        const response = await request(name, accept);
        expect(codingOf(response)).toBe('gzip');
        expect(Buffer.from(CONTENTS[name]).equals(await response.bytes())).toBe(true);
      }
    },
  );

  test.each(['tar', 'zip'])('gets a %s archive compressed where its start shrinks', async (format) => {
    for (const method of ['GET', 'HEAD']) {
      const [noise, text] = await Promise.all(
        ['noise.d', 'text.d'].map((name) => request(name, 'gzip', { method }, format)),
      );
      expect([noise && codingOf(noise), text && codingOf(text)]).toEqual(['identity', 'gzip']);
      await Promise.all([noise?.body?.cancel(), text?.body?.cancel()]);
    }
    const forced = await request('noise.d', 'gzip, identity;q=0', {}, format);
    expect(codingOf(forced)).toBe('gzip');
    await forced.body?.cancel();
  });
});

test.each([
  ['', 'identity'],
  ['gzip', 'gzip'],
  ['deflate, br', 'identity'],
  ['*', 'identity'],
  ['gzip;q=0', 'identity'],
  ['identity', 'identity'],
  ['gzip;q=0.5, identity;q=0.4', 'gzip'],
  ['gzip;q=0.4, identity;q=0.5', 'identity'],
  ['x-gzip, gzip;q=0.001', 'gzip'],
  ['GZIP', 'gzip'],
])('text with Accept-Encoding: %s is %s', async (accept, coding) => {
  const response = await request('text', accept);
  expect(codingOf(response)).toBe(coding);
  await response.body?.cancel();
});
