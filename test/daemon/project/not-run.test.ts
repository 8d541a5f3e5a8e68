import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const FILES = [
  'test/unit/daemon/linux/files/xattr.test.ts',
  'test/unit/daemon/services/init/volumes.test.ts',
];

test('a test whose requirement the machine lacks is listed as not run, with the reason, and the run succeeds', () => {
  // Without python3, some of the tests have another reason.
  needs('root', 'python3');
  const vitest = [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--config', 'test/vitest.config.ts'];
  const { status, stdout } = spawnSync(
    'setpriv',
    ['--bounding-set=-sys_admin', process.execPath, ...vitest, ...FILES],
    { cwd: ROOT, encoding: 'utf8', env: { PATH: process.env.PATH, NO_COLOR: '1' } },
  );
  expect(status).toBe(0);
  expect(stdout).toMatch(/Tests +\d+ passed \| \d+ skipped/);
  const [, told = ''] = stdout.split('NOT RUN on this machine\n');
  expect(told).toMatch(
    /^ {3}mounting is not permitted:\n( {5}.*\n)* {5}test\/unit\/daemon\/linux\/files\/xattr\.test\.ts: .*network mount/,
  );
  expect(told).toMatch(/^ {5}test\/unit\/daemon\/services\/init\/volumes\.test\.ts: all \d+$/m);
});

test('no test is skipped without a reason', () => {
  const files = globSync('test/**/*.ts', { cwd: ROOT, exclude: ['test/support/**'] });
  expect(files.length).toBeGreaterThan(100);
  const silent = files.filter((file) =>
    /\b(skipIf|runIf|skip|todo)\(/.test(readFileSync(join(ROOT, file), 'utf8')),
  );
  expect(silent).toEqual([]);
});
