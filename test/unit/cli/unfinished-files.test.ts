import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';

const MODULE = fileURLToPath(new URL('../../../src/cli/transfer/unfinished-files.ts', import.meta.url));

/** Runs steps in a process of its own, which ends by itself after a while. */
function run(steps: string) {
  const script = `
    import { UnfinishedFiles } from ${JSON.stringify(MODULE)};
    const files = new UnfinishedFiles();
    setTimeout(() => {}, 500);
    ${steps}`;
  return spawnSync(process.execPath, ['--input-type=module-typescript', '--eval', script], {
    encoding: 'utf8',
  });
}

test('a signal removes what is not complete, and ends the program', () => {
  const path = join(scratch(), 'part');
  writeFileSync(path, '');
  const steps = `files.add(${JSON.stringify(path)}); process.kill(process.pid, 'SIGTERM');`;
  expect(run(steps)).toMatchObject({ signal: 'SIGTERM', stderr: '' });
  expect(existsSync(path)).toBe(false);
});

test('a signal in the moment in which a file becomes complete ends the program, and leaves the file', () => {
  const path = join(scratch(), 'whole');
  writeFileSync(path, '');
  const name = JSON.stringify(path);
  const steps = `files.add(${name}); process.kill(process.pid, 'SIGINT'); files.delete(${name});`;
  expect(run(steps)).toMatchObject({ signal: 'SIGINT', stderr: '' });
  expect(existsSync(path)).toBe(true);
});
