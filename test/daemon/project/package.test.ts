import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { programsFor } from '../../support/machine/machine.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { endWithTests } from '../../support/programs/end-with-tests.ts';
import { until } from '../../support/until.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** The command lines of this machine that name a path. */
function commandsWith(path: string): string[] {
  return readdirSync('/proc').flatMap((pid) => {
    try {
      const text = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
      return text.includes(path) ? [text] : [];
    } catch {
      return [];
    }
  });
}

test.each(['SIGTERM', 'SIGINT'] as const)('`npm run package` that %s ends leaves nothing', async (signal) => {
  needs(...programsFor('package'));
  const [temporary, out] = [scratch(), scratch()];
  const env = { ...process.env, TMPDIR: temporary, ENVD_NO_APT: '1' };
  const made = spawn('sh', ['.ci/package', `--out=${out}`], { cwd: ROOT, env, stdio: 'ignore' });
  endWithTests(made);
  const ended = once(made, 'exit');
  await until('it builds', () => commandsWith(temporary).some((text) => text.includes('build.ts')));
  made.kill(signal);
  expect(await ended).toEqual([143, null]);
  // Its children were signaled, too, and end in their own time.
  await until('its commands have ended', () => commandsWith(temporary).length === 0);
  expect(readdirSync(temporary)).toEqual([]);
});

test.each(['package', 'release'])('`npm run %s -- --help` prints its options, and does nothing', (name) => {
  const { status, stdout } = spawnSync('sh', [join(ROOT, '.ci', name), '--help'], { encoding: 'utf8' });
  expect([status, stdout]).toEqual([
    0,
    expect.stringMatching(
      new RegExp(`^usage: npm run ${name} -- .*\\n[^]*^ {2}--fast +compresses little`, 'm'),
    ),
  ]);
});

test('a release without a version, or with an unknown option, is refused', () => {
  const refused = (...args: string[]) => {
    const { status, stderr } = spawnSync('sh', [join(ROOT, '.ci/release'), ...args], { encoding: 'utf8' });
    return [status, stderr];
  };
  expect(refused()).toEqual([1, "release: wanted a version such as 0.3.0, found ''\n"]);
  expect(refused('v1')).toEqual([1, "release: wanted a version such as 0.3.0, found 'v1'\n"]);
  expect(refused('1.0.0', '--fats')).toEqual([1, "release: there is no option '--fats'\n"]);
});
