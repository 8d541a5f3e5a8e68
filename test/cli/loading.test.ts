import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Has Node write the name of each file that it loads to standard error. */
const HOOK = `data:text/javascript,${encodeURIComponent(`
  import { writeSync } from 'node:fs';
  import { registerHooks } from 'node:module';
  registerHooks({ load: (url, context, next) => { writeSync(2, 'loads ' + url + '\\n'); return next(url, context); } });
`)}`;

/** Returns the files that a command line loads, from the sources: a build has them all in one file. */
function loadedBy(args: readonly string[]): string[] {
  const { stderr } = spawnSync(process.execPath, ['--import', HOOK, `${ROOT}src/cli/main.ts`, ...args], {
    // Nothing listens there.
    env: { ENVCTL_URL: 'http://127.0.0.1:1', HOME: '/nonexistent', XDG_CONFIG_HOME: '/dev/null/none' },
    encoding: 'utf8',
  });
  return Array.from(stderr.matchAll(/^loads file:\/\/(.*)$/gm), ([, path = '']) => path.replace(ROOT, ''));
}

// A shell that completes a word waits for this, and so the time is that of few files: the libraries of RPCs alone are 140.
test.each([
  ['--version', []],
  ['health', ['src/cli/commands/reach/health.ts']],
  ['complete signal TE -- envctl kill -s', ['src/cli/commands/reach/complete.ts']],
  ['complete path :/ -- envctl cat', ['src/cli/commands/reach/complete.ts']],
  ['complete process 1 -- envctl run --tag', ['src/cli/commands/reach/complete.ts']],
])('%s loads its own command and one library', (line, commands) => {
  const files = loadedBy(line.split(' '));
  expect(files.filter((file) => /^src\/cli\/commands\/\w+\//.test(file) && !/\/spec\//.test(file))).toEqual(
    commands,
  );
  const packages = files.flatMap((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []);
  expect([...new Set(packages)]).toEqual(['commander']);
  expect(files.length).toBeLessThan(35);
});

test('run loads nothing of the other commands', () => {
  const files = loadedBy(['run', 'true']);
  expect(files.filter((file) => /^src\/cli\/(transfer|mcp|console|conformance)\//.test(file))).toEqual([]);
  expect(files).toContain('src/cli/commands/process/run.ts');
});
