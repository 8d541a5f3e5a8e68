import { expect, test } from 'vitest';
import {
  grouped,
  nonEmpty,
  type Program,
  parsePort,
  parseUrl,
  readSettings,
} from '../../../../src/base/program/settings.ts';

const PROGRAM: Program = {
  name: 'example',
  description: 'An example.',
  version: ['1.2.3', 'print the version'],
  prefix: 'EXAMPLE_',
  switches: [{ flags: '--print', help: 'prints' }],
  settings: [
    { flags: '--port <number>', help: 'port to listen on', parse: parsePort, defaultValue: 80 },
    { flags: '--some-url <url>', help: 'a place', parse: parseUrl(['http:'], 'refused', 'It must be http.') },
    { flags: '--api-key <key>', help: 'opens', parse: nonEmpty, mandatory: true },
    ...grouped('Groups', [{ flags: '--no-groups', help: 'without groups' }]),
  ],
};

const read = (argv: readonly string[], env: Readonly<Record<string, string>> = {}) =>
  readSettings(PROGRAM, ['--api-key=k', ...argv], env);

test.each([
  [[], {}, { port: 80, groups: true }],
  [[], { EXAMPLE_PORT: '1' }, { port: 1 }],
  [['--port=2'], { EXAMPLE_PORT: '1' }, { port: 2 }],
  [[], { EXAMPLE_PORT: '' }, { port: 80 }],
  [[], { EXAMPLE_SOME_URL: 'http://a/b' }, { someUrl: 'http://a/b' }],
  [[], { EXAMPLE_NO_GROUPS: '1' }, { groups: false }],
  [[], { EXAMPLE_NO_GROUPS: '0' }, { groups: true }],
  [[], { EXAMPLE_NO_GROUPS: 'false' }, { groups: true }],
  // Flags that print and exit, and those that commander adds, have no variable.
  [[], { EXAMPLE_PRINT: '1', EXAMPLE_VERSION: '1', EXAMPLE_HELP: '1' }, { port: 80 }],
  [['--print'], {}, { print: true }],
])('%j with %j is %j', (argv, env, settings) => {
  expect(read(argv, env)).toEqual({ settings: expect.objectContaining(settings) });
});

test.each([
  [['--port=65536'], {}, /'--port <number>'.*whole number from 0 to 65535/],
  [[], { EXAMPLE_PORT: 'x' }, /'--port <number>'.*whole number/],
  [['--some-url=https://a'], {}, /It must be http/],
  [['--some-url=http://user:secret@a'], {}, /It must be http/],
  [['--api-key='], {}, /must not be empty/],
  [['word'], {}, /too many arguments/],
])('%j with %j is bad usage', (argv, env, sentence) => {
  expect(read(argv, env)).toEqual({ exitCode: 2, output: expect.stringMatching(sentence) });
});

test('a mandatory setting can be given by its variable', () => {
  expect(readSettings(PROGRAM, [], {})).toMatchObject({ exitCode: 2 });
  expect(readSettings(PROGRAM, [], { EXAMPLE_API_KEY: 'k' })).toMatchObject({ settings: { apiKey: 'k' } });
});

test('the help names the variable of each setting', () => {
  const help = read(['--help']);
  expect(help).toMatchObject({ exitCode: 0 });
  for (const text of ['EXAMPLE_PORT', 'EXAMPLE_SOME_URL', 'EXAMPLE_NO_GROUPS=1', 'default: 80']) {
    expect(help).toMatchObject({ output: expect.stringContaining(`(${text})`) });
  }
  expect(help).toMatchObject({
    output: expect.stringMatching(/^Options:\n[\s\S]*--port[\s\S]*\nGroups:\n +--no-groups/m),
  });
  expect(read(['--version'])).toEqual({ exitCode: 0, output: '1.2.3\n' });
});
