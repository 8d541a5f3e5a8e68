import { EXIT_CODES } from '../../output/failure.ts';
import type { CommandDescription, OptionSpec } from '../spec/description.ts';
import { GLOBAL_OPTIONS, VARIABLES } from '../spec/global-options.ts';

/** Returns the manual page of all commands in the language of man(7). */
export function manualPage(table: readonly CommandDescription[], version: string): string {
  return [
    `.TH ENVCTL 1 "" "envctl ${escaped(version)}" "User Commands"`,
    '.SH NAME',
    'envctl \\- commands, terminals and files of a sandbox, by the daemon in it',
    '.SH SYNOPSIS',
    '.B envctl',
    '.I COMMAND',
    '[\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...',
    '.SH DESCRIPTION',
    'envctl calls the daemon of a sandbox, directly or through a gateway. It needs nothing but the published interface, and uses what envd has beyond it where it is there.',
    '.SH COMMANDS',
    ...table.flatMap(commandPart),
    '.SH OPTIONS OF EVERY COMMAND',
    ...GLOBAL_OPTIONS.flatMap(optionPart),
    '.SH ENVIRONMENT',
    'An option goes before its variable, and a variable before the context.',
    ...Object.entries(VARIABLES).flatMap(([name, flag]) => ['.TP', `.B ${escaped(name)}`, escaped(flag)]),
    '.TP',
    '.B NO_COLOR',
    'if it is set, there are no colors',
    '.SH FILES',
    '.TP',
    '.I ~/.config/envctl/config.json',
    'the contexts, for their owner only',
    '.SH EXIT STATUS',
    '.TP',
    '.B 0',
    'Everything was done.',
    ...Object.values(EXIT_CODES).flatMap(([code, meaning]) => ['.TP', `.B ${code}`, escaped(meaning)]),
    '.TP',
    '.B 130',
    '^C has ended envctl.',
    '.TP',
    '.B 141',
    'The reader of the output has gone.',
    '',
  ].join('\n');
}

function commandPart(command: CommandDescription): string[] {
  const { name, summary, examples, details = [], options, exits = [], json } = command;
  return [
    `.SS "envctl ${[name, ...command.arguments.map(argumentText)].join(' ')}"`,
    `${escaped(summary)}.`,
    ...details.flatMap((paragraph) => ['.PP', escaped(paragraph)]),
    ...['.PP', '.nf', ...examples.map((each) => `    ${escaped(each)}`), '.fi'],
    ...command.arguments.flatMap((each) => ['.TP', `.I ${escaped(each.name)}`, escaped(each.help)]),
    ...options.flatMap(optionPart),
    ...exits.flatMap(([code, meaning]) => ['.TP', `exit code ${escaped(code)}`, escaped(meaning)]),
    '.TP',
    '.B \\-\\-json',
    escaped(json),
  ];
}

function argumentText({ name, isOptional, isVariadic }: CommandDescription['arguments'][number]): string {
  const shown = name.toUpperCase() + (isVariadic ? '...' : '');
  return isOptional ? `[${shown}]` : shown;
}

function optionPart({ flags, help }: OptionSpec): string[] {
  return ['.TP', `.B ${escaped(flags)}`, escaped(help)];
}

/** Escapes text, so that roff reads no part of it as a request or an escape. */
function escaped(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/, '\\&$1');
}
