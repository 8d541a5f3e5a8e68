import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { native } from '../../../src/daemon/linux/system/native.ts';
import { circlesOf, graphOf } from '../../support/code/circles.ts';

const ROOT = fileURLToPath(new URL('../../../native', import.meta.url));
const SOURCE = join(ROOT, 'src');

const files = globSync('**/*.[ch]', { cwd: SOURCE });
const edges = files.flatMap((from) => {
  const includes = readFileSync(join(SOURCE, from), 'utf8').matchAll(/^#include "([^"]+)"/gm);
  return Array.from(includes, ([, to = '']) => ({ from, to }));
});

test('every include is relative to native/src', () => {
  expect(files.length).toBeGreaterThan(30);
  expect(edges.filter(({ to }) => !files.includes(to))).toEqual([]);
});

test('there is no include cycle between files or folders', () => {
  expect(circlesOf(graphOf(edges, (file) => file))).toEqual([]);
  expect(circlesOf(graphOf(edges, dirname))).toEqual([]);
});

test('a subject includes only itself and the support', () => {
  const crossing = edges.filter(({ from, to }) => dirname(to) !== 'support' && dirname(to) !== dirname(from));
  expect(crossing).toEqual([]);
});

test('the exports of the addon are those of index.d.ts', () => {
  const declared = readFileSync(join(ROOT, 'index.d.ts'), 'utf8').matchAll(/^export function (\w+)/gm);
  expect(Object.keys(native).sort()).toEqual(Array.from(declared, ([, name]) => name).sort());
});
