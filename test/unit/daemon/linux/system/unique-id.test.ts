import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { reseedRandom } from '../../../../../src/daemon/linux/system/machine.ts';
import { uniqueId } from '../../../../../src/daemon/linux/system/unique-id.ts';
import { needs } from '../../../../support/machine/needs.ts';

const SOURCES = fileURLToPath(new URL('../../../../../src', import.meta.url));

test('ids are UUIDs, version 4, and each is another one', () => {
  const ids = Array.from({ length: 1000 }, uniqueId);
  for (const id of ids)
    expect(id).toMatch(/^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
  expect(new Set(ids).size).toBe(1000);
});

test('no id of the daemon comes from the generators of Node, whose state a snapshot clones', () => {
  const files = globSync('{base,daemon}/**/*.ts', { cwd: SOURCES });
  expect(files.length).toBeGreaterThan(100);
  const found = files.filter((file) =>
    /\brandom(UUID|Bytes|Int|Fill\w*)\b|getRandomValues/.test(readFileSync(join(SOURCES, file), 'utf8')),
  );
  expect(found).toEqual([]);
});

test('the kernel takes a seed', () => {
  needs('root');
  expect(() => reseedRandom('seed')).not.toThrow();
});
