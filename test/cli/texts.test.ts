import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { parseCommandLine } from '../../src/cli/commands/parse.ts';
import { allCommands, GROUPS } from '../../src/cli/commands/table.ts';
import { EXIT_CODES } from '../../src/cli/output/failure.ts';
import { printable, safeJson, widthOf } from '../../src/cli/output/printable.ts';
import { EscapeKey } from '../../src/cli/terminal/escape.ts';
import { readPlace } from '../../src/cli/transfer/place.ts';
import { envctl } from '../support/programs/envctl.ts';

const COMMANDS = await allCommands();

/** A function of bash that prints the arguments of each of its calls. */
const PRINT = `envctl() { printf '%s\\0' "$@"; printf '\\n\\0'; }\n`;

test('the help names every command', async () => {
  const { stdout, code } = await envctl('', ['--help']);
  expect(code).toBe(0);
  for (const { name } of COMMANDS) expect(stdout).toMatch(new RegExp(`  ${name.split(' ')[0]}[ |]`));
  expect((await envctl('', ['run', '--help'])).stdout).toContain('--detach');
});

test.each([
  [['nosuch'], /unknown command 'nosuch'/],
  [['ps', '--nosuch'], /unknown option '--nosuch'/],
  [['cp'], /missing required argument/],
  [['run', '--timeout', 'soon', 'x'], /It must be a time such as/],
  [['run', '--timeout', '25d', 'x'], /It must be at most 24d/],
  [['top', '--interval', '25d'], /It must be at most 24d/],
  [['sanboxes', 'list'], /unknown command 'sanboxes' \(Did you mean sandboxes\?\); see `envctl --help`/],
  [['ps', '--usag'], /unknown option '--usag' \(Did you mean --usage\?\); see `envctl ps --help`/],
  [['sandboxes', 'list', '--nosuch'], /see `envctl sandboxes list --help`/],
  [['ps', 'aux'], /Expected 0 arguments but got 1: aux; see `envctl ps --help`/],
])('a wrong command line is one line with exit code 120: %j', async (args, line) => {
  const { code, stderr, stdout } = await envctl('', args);
  expect({ code, stdout }).toEqual({ code: 120, stdout: '' });
  expect(stderr).toMatch(line);
  expect(stderr).toMatch(/^envctl: [^\n]+\n$/);
});

test.each([
  [[], 'Usage: envctl'],
  [['sandboxes'], 'Usage: envctl sandboxes'],
  [['help'], 'Usage: envctl [options] [command]'],
  [['help', 'run'], 'Usage: envctl run'],
  [['sandboxes', 'help', 'list'], 'Usage: envctl sandboxes list'],
])('without a command, or with help, the help is printed: %j', async (args, usage) => {
  const { code, stdout, stderr } = await envctl('', args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toContain(usage);
});

test('every command has examples in its help and in the manual, which the parser accepts', async () => {
  const { stdout: manual } = await envctl('', ['man']);
  const examples = COMMANDS.flatMap((command) =>
    command.examples.map((line) => ({ name: command.name, line })),
  );
  expect(new Set(examples.map(({ name }) => name)).size).toBe(COMMANDS.length);
  const script = PRINT + examples.map(({ line }) => line).join('\n');
  const calls = execFileSync('bash', ['-c', script], { encoding: 'utf8' }).split('\n\0');
  for (const [index, { name, line }] of examples.entries()) {
    expect(manual).toContain(line.replaceAll('\\', '\\e').replaceAll('-', '\\-'));
    const words = (calls[index] ?? '').split('\0').slice(0, -1);
    const parsed = parseCommandLine({ commands: COMMANDS, groups: GROUPS, version: '0.0.0' }, words);
    expect(parsed, line).toMatchObject({ command: { name } });
  }
  expect((await envctl('', ['cp', '--help'])).stdout).toMatch(/\nExamples:\n {2}envctl cp /);
});

test('the manual is accepted by man, and has all commands and exit codes', async () => {
  const { stdout } = await envctl('', ['man']);
  for (const { name } of COMMANDS) expect(stdout).toContain(`.SS "envctl ${name}`);
  for (const [code] of Object.values(EXIT_CODES)) expect(stdout).toContain(`.B ${code}\n`);
});

test.each([
  [['ru'], 'run'],
  [['sandboxes', 'ex'], 'extend'],
  [['run', '--det'], '--detach'],
  [['kill', '--sig'], '--signal'],
  [['ps', '--context-'], ''],
])('bash completes %j to %j', async (words, wanted) => {
  const { stdout } = await envctl('', ['completion', 'bash']);
  const script = `${stdout}\nCOMP_WORDS=(envctl "$@"); COMP_CWORD=$#; _envctl; echo "\${COMPREPLY[*]}"`;
  expect(execFileSync('bash', ['-c', script, 'bash', ...words], { encoding: 'utf8' }).trim()).toBe(wanted);
});

test('the completions of zsh and fish have every command', async () => {
  for (const shell of ['zsh', 'fish']) {
    const { stdout, code } = await envctl('', ['completion', shell]);
    expect(code).toBe(0);
    for (const { name } of COMMANDS) for (const word of name.split(' ')) expect(stdout).toContain(word);
  }
  expect((await envctl('', ['completion', 'tcsh'])).code).toBe(120);
});

test('each command says what --json prints, and each option has a long name', () => {
  for (const { json, options, name } of COMMANDS) {
    expect(json, name).not.toBe('');
    for (const { flags } of options) expect(flags).toMatch(/--[a-z]/);
  }
});

test.each([
  ['a\x1b[31m\x07\r\n\t', 'a\\x1b[31m\\x07\\r\\n\\t'],
  ['\x9b2J\u202e\u2066\ufeff', '\\x9b2J\\u202e\\u2066\\ufeff'],
  ['caf\uefe9', 'caf\\xe9'],
  ['ünï 字 😀', 'ünï 字 😀'],
  ['\ud800', '\\ud800'],
])('printable %j', (text, shown) => {
  expect(printable(text)).toBe(shown);
  const json = safeJson({ text });
  expect(JSON.parse(json)).toEqual({ text });
  expect(printable(json)).toBe(json.replace('\uefe9', '\\xe9'));
});

test('the width of text', () => {
  expect(['abc', '字', '😀', 'e\u0301'].map(widthOf)).toEqual([3, 2, 2, 1]);
});

test('the escape key is found wherever the input is divided', () => {
  const typed = Buffer.from('ab\x1d\x1dc\x1dxd\x1ddrest');
  for (let at = 0; at <= typed.length; at++) {
    const key = new EscapeKey(0x1d);
    const one = key.read(typed.subarray(0, at));
    const parts = one.action ? [one] : [one, key.read(typed.subarray(at))];
    expect(Buffer.concat(parts.map(({ bytes }) => bytes)).toString()).toBe('ab\x1dc\x1dxd');
    expect(parts.at(-1)?.action).toBe('detach');
  }
});

test.each([
  [':a', { side: 'remote', context: null, path: 'a' }],
  ['box:/a:b', { side: 'remote', context: 'box', path: '/a:b' }],
  ['./a:b', { side: 'local', path: './a:b' }],
  ['/x/a:b', { side: 'local', path: '/x/a:b' }],
  ['a', { side: 'local', path: 'a' }],
])('the place %j', (text, place) => {
  expect(readPlace(text)).toEqual(place);
});
