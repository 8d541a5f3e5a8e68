import { parse } from 'content-disposition';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { dispositionOf, typeOf } from '../../../../../../src/daemon/rest/routes/files/file-headers.ts';

test.each([
  ['test.txt', 'inline; filename=test.txt'],
  ['a b.txt', 'inline; filename="a b.txt"'],
  ['say "hi".txt', 'inline; filename="say \\"hi\\".txt"'],
  ['na\u00efve.txt', "inline; filename*=utf-8''na%C3%AFve.txt"],
  ['\u65e5\u672c.txt', "inline; filename*=utf-8''%E6%97%A5%E6%9C%AC.txt"],
  ['line\nbreak', "inline; filename*=utf-8''line%0Abreak"],
])('%s: %s', (name, header) => {
  expect(dispositionOf(name)).toBe(header);
});

test('every name comes back, in a header that can be sent', () => {
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
])('the type of %s', (name, type) => {
  expect(typeOf(name)).toBe(type);
});
