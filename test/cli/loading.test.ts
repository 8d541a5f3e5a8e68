import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Has Node write the name of each file that it loads to standard error, and that of the globals which load the fetch API. */
const HOOK = `data:text/javascript,${encodeURIComponent(`
  import { writeSync } from 'node:fs';
  import { registerHooks } from 'node:module';
  registerHooks({ load: (url, context, next) => { writeSync(2, 'loads ' + url + '\\n'); return next(url, context); } });
  for (const name of ['Headers', 'fetch'])
    Object.defineProperty(globalThis, name, { get: () => writeSync(2, 'loads file:///' + name + '\\n') });
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

const commandsIn = (files: readonly string[]) =>
  files.filter((file) => /^src\/cli\/commands\/\w+\//.test(file) && !/\/spec\//.test(file));
const packagesIn = (files: readonly string[]) => [
  ...new Set(files.flatMap((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? [])),
];

test.each([
  ['--version', []],
  ['health', ['src/cli/commands/reach/health.ts']],
  ['complete signal TE', ['src/cli/commands/reach/complete.ts']],
])('%s loads its own command and one library', (line, commands) => {
  const files = loadedBy(line.split(' '));
  expect(commandsIn(files)).toEqual(commands);
  expect(packagesIn(files)).toEqual(['commander']);
  // The libraries of RPCs alone are 140.
  expect(files.length).toBeLessThan(35);
});

test.each(['signal TE -- envctl kill -s', 'path :/ -- envctl cat', 'process 1 -- envctl run --tag'])(
  'a shell that completes a word waits for no library: %s',
  (line) => {
    const files = loadedBy(['complete', ...line.split(' ')]);
    expect(commandsIn(files)).toEqual(['src/cli/commands/reach/complete.ts']);
    expect(packagesIn(files)).toEqual([]);
    expect(files.length).toBeLessThan(25);
  },
);

test('run loads nothing of the other commands', () => {
  const files = loadedBy(['run', 'true']);
  expect(files.filter((file) => /^src\/cli\/(transfer|mcp|console|conformance)\//.test(file))).toEqual([]);
  expect(files).toContain('src/cli/commands/process/run.ts');
});

test.each(['run', 'ps'])(
  '%s loads neither the fetch API nor HTTP/2, which take longer than the start of Node',
  (line) => {
    const files = loadedBy([line, ...(line === 'run' ? ['true'] : [])]);
    expect(files).toContain('src/cli/connection/connection.ts');
    expect(files.filter((file) => /^\/(Headers|fetch)$|connect-node/.test(file))).toEqual([]);
  },
);
