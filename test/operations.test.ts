import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PLATFORM_ONLY, WITHOUT_TOKEN } from '../src/base/http/operations.ts';
import { readOperations } from './support/code/openapi.ts';

/*
 * A route is described in proto/envd.openapi.yaml, and named in src/base/http/operations.ts if it is not like the others. The
 * gate finds what is missing.
 */

const DAEMON = join(import.meta.dirname, '../src/daemon');
const operations = readOperations();

const sorted = (names: Iterable<string>) => [...new Set(names)].sort();

function routedPaths(): string[] {
  const files = ['http', 'extensions'].flatMap((folder) =>
    readdirSync(join(DAEMON, folder), { recursive: true, encoding: 'utf8' }).map((name) =>
      join(folder, name),
    ),
  );
  const sources = files
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(join(DAEMON, name), 'utf8'));
  const routed = sources.join('\n').matchAll(/(?:url: |\bPATH = |\.(?:get|post)(?:<.*>)?\()'(\/[^']*)'/g);
  return Array.from(routed, ([, path = '']) => path.replaceAll(/:(\w+)/g, '{$1}'));
}

test('the routes are the paths of proto/envd.openapi.yaml', () => {
  expect(sorted(routedPaths())).toEqual(sorted(operations.map(({ path }) => path)));
});

test('operations whose `security` in proto/envd.openapi.yaml is their own are in WITHOUT_TOKEN', () => {
  const described = operations
    .filter(({ security }) => security)
    .map(({ method, path }) => `${method} ${path}`);
  // HEAD is served where GET is.
  const heads = described
    .filter((name) => name.startsWith('GET '))
    .map((name) => name.replace('GET', 'HEAD'));
  expect(sorted(WITHOUT_TOKEN)).toEqual(sorted([...described, ...heads]));
});

test('operations with `x-platform-only` in proto/envd.openapi.yaml are in PLATFORM_ONLY', () => {
  const described = operations.filter((operation) => operation['x-platform-only']).map(({ path }) => path);
  expect(sorted(PLATFORM_ONLY)).toEqual(sorted(described));
});

test('operations with the tag `pause` have `x-platform-only`', () => {
  const pause = operations.filter(({ tags }) => tags?.includes('pause'));
  expect(pause.length).toBeGreaterThan(0);
  expect(pause.filter((operation) => !operation['x-platform-only']).map(({ path }) => path)).toEqual([]);
});
