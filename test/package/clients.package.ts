import { spawnSync } from 'node:child_process';
import { renameSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, inject, test } from 'vitest';
import { publicScratch } from '../support/machine/scratch.ts';
import { artefact } from '../support/package/made.ts';

/* The tests with the published client, and the conformance suite, against the programs of the archives. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const ARCHIVES = [
  ['envd', /^envd-[\d.]+-linux-.*\.tar\.zst$/, 'dist'],
  ['envd-gateway', /^envd-gateway-[\d.]+-linux-.*\.tar\.zst$/, 'dist-gateway'],
] as const;

/** The environment without what tells vitest(1) that it is a worker. */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST')));
}

test('the published client and the conformance suite pass against the programs of the archives', () => {
  const place = publicScratch();
  for (const [name, archive, directory] of ARCHIVES) {
    spawnSync('tar', ['-C', place, '--zstd', '-xf', artefact(inject('artefacts'), archive)]);
    renameSync(join(place, name), join(place, directory));
  }
  // The conformance suite is a part of envctl, which is in no archive.
  spawnSync('node', ['systemd/image/build.ts', 'envctl', `--out=${place}`], { cwd: ROOT });
  const files = ['test/clients', 'test/conformance.test.ts', '--exclude=test/clients/talk.test.ts'];
  const { status, stdout, stderr } = spawnSync(
    'vitest',
    ['run', '--config', 'test/vitest.config.ts', ...files],
    {
      cwd: ROOT,
      env: { ...ownEnvironment(), ENVD_TEST_IMAGE: relative(ROOT, place) },
      encoding: 'utf8',
    },
  );
  expect({ status, stdout, stderr }).toMatchObject({
    status: 0,
    stdout: expect.stringMatching(/\d+ passed/),
  });
  process.stdout.write(stdout.split('\n').slice(-8).join('\n'));
});
