import { parse } from 'content-disposition';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  acceptsIdentity,
  chooseCoding,
  dispositionOf,
  typeOf,
} from '../../../../../../src/daemon/http/rest/files/content-headers.ts';

test.each([
  ['test.txt', 'inline; filename=test.txt'],
  ['a b.txt', 'inline; filename="a b.txt"'],
  ['say "hi".txt', 'inline; filename="say \\"hi\\".txt"'],
  ['na\u00efve.txt', "inline; filename*=utf-8''na%C3%AFve.txt"],
  ['\u65e5\u672c.txt', "inline; filename*=utf-8''%E6%97%A5%E6%9C%AC.txt"],
  ['line\nbreak', "inline; filename*=utf-8''line%0Abreak"],
])('the disposition of %s is %s', (name, header) => {
  expect(dispositionOf(name)).toBe(header);
});

test('any file name survives encoding and decoding, in a valid header', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', minLength: 1 }), (name) => {
      const header = dispositionOf(name);
      expect(header).toMatch(/^[\x20-\x7e]*$/);
      const { filename } = parse(header).parameters;
      expect(filename).toBe(name.toWellFormed());
    }),
  );
});

test.each([
  ['test.txt', 'text/plain; charset=utf-8'],
  ['page.HTML', 'text/html; charset=utf-8'],
  ['data.json', 'application/json'],
  ['photo.png', 'image/png'],
  ['archive.tar.gz', 'application/gzip'],
  ['Makefile', 'application/octet-stream'],
  ['json', 'application/octet-stream'],
  ['.txt', 'application/octet-stream'],
  ['x.unknown-extension', 'application/octet-stream'],
])('the type of %s is %s', (name, type) => {
  expect(typeOf(name)).toBe(type);
});

test.each([
  [undefined, 'identity'],
  ['', 'identity'],
  ['gzip, deflate', 'gzip'],
  ['gzip, deflate, br, zstd', 'gzip'],
  ['GZIP', 'gzip'],
  ['*', 'identity'],
  ['deflate', 'identity'],
  ['identity', 'identity'],
  ['identity, gzip', 'identity'],
  ['gzip;q=0.5', 'gzip'],
  ['gzip;q=0.5, identity', 'identity'],
  ['gzip;q=0.5, identity;q=0.4', 'gzip'],
  ['gzip;q=0', 'identity'],
  ['br;q=1, gzip;q=0.8, *;q=0.1', 'gzip'],
  ['identity;q=0, gzip', 'gzip'],
  ['*;q=0, gzip', 'gzip'],
  ['identity;q=0', null],
  ['*;q=0', null],
  ['gzip;q=0, *;q=0', null],
  ['deflate, *;q=0', null],
])('Accept-Encoding: %s selects %s', (header, coding) => {
  expect(chooseCoding(header)).toBe(coding);
});

test('identity is acceptable unless it is excluded', () => {
  expect(acceptsIdentity(undefined)).toBe(true);
  expect(acceptsIdentity('gzip')).toBe(true);
  expect(acceptsIdentity('gzip, identity;q=0')).toBe(false);
  expect(acceptsIdentity('gzip, *;q=0')).toBe(false);
});

test('any Accept-Encoding yields a result', () => {
  const piece = fc.constantFrom(
    'gzip',
    'identity',
    '*',
    ';',
    'q=',
    '0',
    '1',
    '.',
    ',',
    ' ',
    '"',
    '\\',
    '=',
    '/',
  );
  const header = fc.oneof(
    fc.string(),
    fc.array(piece, { maxLength: 20 }).map((pieces) => pieces.join('')),
  );
  fc.assert(
    fc.property(header, (text) => {
      expect(['identity', 'gzip', null]).toContain(chooseCoding(text));
    }),
    { numRuns: 2000 },
  );
});
