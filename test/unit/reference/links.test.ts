import { mkdtempDisposableSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { brokenLinks } from '../../../proto/reference/links.ts';

test('finds links that lead nowhere, and what a page would load from elsewhere', () => {
  using directory = mkdtempDisposableSync(join(tmpdir(), 'envd-reference-'));
  const write = (name: string, html: string) => writeFileSync(join(directory.path, name), html);
  write(
    'a.html',
    '<h1 id="here"></h1><a href="#here"></a><a href="b.html#there"></a><a href="b.html#gone"></a>',
  );
  write(
    'b.html',
    '<p id="there"><a class="x" href="c.html"></a><a href="https://example.com/"></a><a href="#"></a>',
  );
  write('d.html', '<script src="https://example.com/x.js">"<a href="c.html">"</script><link href="data:,">');
  expect(brokenLinks(directory.path).sort()).toEqual([
    'a.html: b.html#gone',
    'b.html: #',
    'b.html: c.html',
    'd.html: https://example.com/x.js',
  ]);
});
