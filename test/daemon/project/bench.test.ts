import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const BENCH = fileURLToPath(new URL('../../bench', import.meta.url));

function bench(...args: string[]) {
  return spawnSync(process.execPath, [join(BENCH, 'run.ts'), ...args], { encoding: 'utf8' });
}

test.each([
  [[], /^bench: a name is missing: npm run bench -- NAME/],
  [['toString'], /^bench: there is no 'toString': npm run bench -- NAME/],
])('arguments %j: usage error that lists every benchmark', (args, reason) => {
  const { status, stderr } = bench(...args);
  expect(status).toBe(2);
  expect(stderr).toMatch(reason);
  const names = Array.from(stderr.matchAll(/^ {2}([a-z-]+) /gm), ([, name]) => name);
  // A benchmark is a program that no other program of the directory imports.
  const files = globSync(join(BENCH, '*.ts'));
  const texts = files.map((file) => readFileSync(file, 'utf8')).join();
  const programs = files
    .map((file) => basename(file, '.ts'))
    .filter(
      (name) => name !== 'run' && !texts.includes(`'./${name}.ts'`) && !texts.includes(`('${name}.ts'`),
    );
  expect(names).toEqual(programs.toSorted());
});

test('a benchmark gets its arguments, and its exit code is returned', () => {
  const { status, stdout } = bench('collapse-soak', '1');
  expect([status, stdout]).toEqual([0, expect.stringContaining('collapse')]);
});
