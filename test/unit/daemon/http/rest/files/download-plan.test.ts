import { describe, expect, test } from 'vitest';
import {
  type DownloadFacts,
  planDownload,
} from '../../../../../../src/daemon/http/rest/files/download-plan.ts';

const MODIFIED = new Date('2026-05-17T10:20:30.400Z');
const LAST_MODIFIED = 'Sun, 17 May 2026 10:20:30 GMT';
const COMMON = {
  'cache-control': 'private, no-cache',
  'x-content-type-options': 'nosniff',
  vary: 'Accept-Encoding',
};
const FILE: DownloadFacts = { name: 'test.txt', size: 10, modified: MODIFIED, tag: 'tag' };
const VIRTUAL: DownloadFacts = { name: 'kallsyms', size: null, modified: null, tag: null };

const get = (headers: Record<string, string> = {}, file = FILE) => planDownload('GET', headers, file);

describe('the whole file', () => {
  test('without conditions is 200', () => {
    expect(get()).toEqual({
      status: 200,
      coding: 'identity',
      pieces: [{ start: 0, end: 10 }],
      headers: {
        ...COMMON,
        etag: '"tag"',
        'last-modified': LAST_MODIFIED,
        'content-type': 'text/plain; charset=utf-8',
        'content-disposition': 'inline; filename=test.txt',
        'accept-ranges': 'bytes',
        'content-length': 10,
      },
    });
  });

  test('coded has a weak ETag and no Content-Length', () => {
    const { coding, headers } = get({ 'accept-encoding': 'gzip, deflate' });
    expect(coding).toBe('gzip');
    expect(headers).toMatchObject({ etag: 'W/"tag-gzip"', 'content-encoding': 'gzip' });
    expect(headers).not.toHaveProperty('content-length');
  });

  test('of unknown length has no ranges and no validators', () => {
    expect(get({ range: 'bytes=0-1' }, VIRTUAL)).toEqual({
      status: 200,
      coding: 'identity',
      pieces: [{ start: 0, end: null }],
      headers: {
        ...COMMON,
        'content-type': 'application/octet-stream',
        'content-disposition': 'inline; filename=kallsyms',
      },
    });
  });
});

describe('conditions', () => {
  test.each([
    ['if-none-match', '"tag"'],
    ['if-none-match', 'W/"tag"'],
    ['if-none-match', '"other", "tag"'],
    ['if-none-match', '*'],
    ['if-modified-since', LAST_MODIFIED],
    ['if-modified-since', 'Sun, 17 May 2026 10:20:31 GMT'],
  ])('%s: %s is 304', (name, value) => {
    const { status, headers, pieces } = get({ [name]: value });
    expect(status).toBe(304);
    expect(pieces).toEqual([]);
    expect(headers).toEqual({ ...COMMON, etag: '"tag"', 'last-modified': LAST_MODIFIED });
  });

  test('a 304 for the coded form depends on Accept-Encoding', () => {
    const has = { 'if-none-match': 'W/"tag-gzip"', 'accept-encoding': 'gzip' };
    expect(get(has)).toMatchObject({ status: 304, headers: { etag: 'W/"tag-gzip"' } });
    expect(get({ ...has, 'accept-encoding': 'identity' }).status).toBe(200);
  });

  test.each([
    ['if-none-match', '"other"'],
    ['if-modified-since', 'Sun, 17 May 2026 10:20:29 GMT'],
    ['if-modified-since', 'yesterday'],
    ['if-match', '"tag"'],
    ['if-match', '"a", "tag"'],
    ['if-match', 'W/"tag-gzip"'],
    ['if-match', '*'],
    ['if-unmodified-since', LAST_MODIFIED],
    ['if-unmodified-since', 'tomorrow'],
  ])('%s: %s is 200, uncoded', (name, value) => {
    expect(get({ [name]: value, 'accept-encoding': 'gzip' })).toMatchObject({
      status: 200,
      coding: 'identity',
    });
  });

  test.each([
    ['if-match', '"other"'],
    ['if-match', 'W/"tag"'],
    ['if-unmodified-since', 'Sun, 17 May 2026 10:20:29 GMT'],
  ])('%s: %s is failed_precondition', (name, value) => {
    expect(() => get({ [name]: value })).toThrow(expect.objectContaining({ kind: 'failed_precondition' }));
  });

  test('If-None-Match takes precedence over If-Modified-Since', () => {
    const headers = { 'if-none-match': '"other"', 'if-modified-since': LAST_MODIFIED };
    expect(get(headers).status).toBe(200);
  });
});

describe('ranges', () => {
  test.each(['W/"tag-gzip"', '"other"'])(
    'with If-None-Match: %s are ignored: the whole file is 200',
    (etag) => {
      const { status, coding, pieces } = get({ range: 'bytes=0-1', 'if-none-match': etag });
      expect([status, coding, pieces]).toEqual([200, 'identity', [{ start: 0, end: 10 }]]);
    },
  );

  test('of the current copy of a client are 304', () => {
    expect(get({ range: 'bytes=0-1', 'if-none-match': '"tag"' }).status).toBe(304);
  });

  test('a single one is 206', () => {
    const { status, headers, pieces } = get({ range: 'bytes=2-4', 'accept-encoding': 'gzip' });
    expect(status).toBe(206);
    expect(pieces).toEqual([{ start: 2, end: 5 }]);
    expect(headers).toMatchObject({
      'content-range': 'bytes 2-4/10',
      'content-length': 3,
      'content-type': 'text/plain; charset=utf-8',
      etag: '"tag"',
      'accept-ranges': 'bytes',
    });
  });

  test('several are multipart, with the total length', () => {
    const { status, headers, pieces } = get({ range: 'bytes=0-1,-2' });
    expect(status).toBe(206);
    const boundary = /^multipart\/byteranges; boundary=(.+)$/.exec(String(headers['content-type']))?.[1];
    const part = (range: string) =>
      `\r\n--${boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes ${range}/10\r\n\r\n`;
    const shown = pieces.map((piece) => (Buffer.isBuffer(piece) ? piece.toString() : piece));
    const end = `\r\n--${boundary}--\r\n`;
    expect(shown).toEqual([part('0-1'), { start: 0, end: 2 }, part('8-9'), { start: 8, end: 10 }, end]);
    expect(headers['content-length']).toBe(part('0-1').length + part('8-9').length + end.length + 4);
    expect(headers).not.toHaveProperty('content-range');
  });

  test('outside of the file are 416', () => {
    expect(get({ range: 'bytes=10-' })).toMatchObject({
      status: 416,
      headers: { 'content-range': 'bytes */10' },
      pieces: [],
    });
  });

  test.each([
    ['"tag"', 206],
    ['W/"tag"', 200],
    ['"other"', 200],
    [LAST_MODIFIED, 206],
    ['Sun, 17 May 2026 10:20:29 GMT', 200],
    ['Sun, 17 May 2026 10:20:31 GMT', 200],
    ['nonsense', 200],
  ])('If-Range: %s: %i', (condition, status) => {
    expect(get({ range: 'bytes=0-1', 'if-range': condition }).status).toBe(status);
  });

  test('are ignored unless the method is GET', () => {
    expect(planDownload('HEAD', { range: 'bytes=0-1' }, FILE).status).toBe(200);
  });

  test('are ignored when the client excludes the uncoded form', () => {
    const headers = { range: 'bytes=0-1', 'accept-encoding': 'gzip, identity;q=0' };
    expect(get(headers)).toMatchObject({ status: 200, coding: 'gzip' });
  });
});

test('a client that excludes all codings gets not_acceptable', () => {
  expect(() => get({ 'accept-encoding': 'identity;q=0' })).toThrow(
    expect.objectContaining({ kind: 'not_acceptable' }),
  );
});
