import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../src', import.meta.url));
const KINDS = '(?:async )?(?:function\\*?|abstract class|class|const|let|interface|type|enum)';

/** The names that a source exports at its declarations. */
const exportedBy = (source: string) =>
  Array.from(source.matchAll(new RegExp(`^export ${KINDS} +([\\w$]+)`, 'gm')), ([, name = '']) => name);

/** The names that more than one source exports, each with the files. */
function repeated(sources: ReadonlyMap<string, string>): string[] {
  const files = new Map<string, Set<string>>();
  for (const [file, source] of sources)
    for (const name of exportedBy(source)) files.set(name, (files.get(name) ?? new Set()).add(file));
  return Array.from(files)
    .filter(([, each]) => each.size > 1)
    .map(([name, each]) => `${name}: ${[...each].join(', ')}`);
}

test('the search finds a name that two files export', () => {
  const sources = new Map([
    ['a', 'export class Place {}\nexport async function read() {}\nexport async function read() {}'],
    ['b', 'export type Place = 1;\nconst read = 1;'],
  ]);
  expect(repeated(sources)).toEqual(['Place: a, b']);
});

test('an exported name has one meaning in all of src', () => {
  const files = globSync('**/*.{ts,tsx}', { cwd: ROOT }).filter((file) => !file.startsWith('gen/'));
  const sources = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));
  expect(files.length).toBeGreaterThan(200);
  expect(repeated(sources)).toEqual([]);
});
