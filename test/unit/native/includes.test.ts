import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { circlesOf, graphOf } from '../../support/circles.ts';

const ROOT = fileURLToPath(new URL('../../../native', import.meta.url));
const SOURCE = join(ROOT, 'src');

const files = globSync('**/*.[ch]', { cwd: SOURCE });
const edges = files.flatMap((from) => {
  const includes = readFileSync(join(SOURCE, from), 'utf8').matchAll(/^#include "([^"]+)"/gm);
  return Array.from(includes, ([, to = '']) => ({ from, to }));
});

test('every include is relative to native/src', () => {
  expect(files.length).toBeGreaterThan(40);
  expect(edges.filter(({ to }) => !files.includes(to))).toEqual([]);
});

test('there is no include cycle between files or folders', () => {
  expect(circlesOf(graphOf(edges, (file) => file))).toEqual([]);
  expect(circlesOf(graphOf(edges, dirname))).toEqual([]);
});

test('a subject includes only itself and the support; addon.c may include all', () => {
  const crossing = edges.filter(
    ({ from, to }) => from !== 'addon.c' && dirname(to) !== 'support' && dirname(to) !== dirname(from),
  );
  expect(crossing).toEqual([]);
  const subjects = [...new Set(files.map(dirname))].filter(
    // The starter is a program of its own.
    (name) => !['.', 'support', 'starter'].includes(name),
  );
  const used = edges.filter(({ from }) => from === 'addon.c').map(({ to }) => to);
  expect(used.toSorted()).toEqual([...subjects.map((name) => `${name}/${name}.h`), 'support/napi.h'].sort());
});

test('the exports of the addon are those of index.d.ts, in the same order', () => {
  const declared = readFileSync(join(ROOT, 'index.d.ts'), 'utf8').matchAll(/^export function (\w+)/gm);
  const exported = readFileSync(join(SOURCE, 'addon.c'), 'utf8').matchAll(/^ {4}\{"(\w+)", js_/gm);
  expect(Array.from(exported, ([, name]) => name)).toEqual(Array.from(declared, ([, name]) => name));
});
