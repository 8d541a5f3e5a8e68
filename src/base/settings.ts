import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** What the command line asks for: to run, or to print something and exit. */
export type Invocation<Config> = { readonly run: Config } | Printed;

interface Printed {
  readonly exitCode: 0 | 2;
  readonly output: string;
}

/** PATH of a program that was started without one. */
export const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** One flag of a command line and what is known of its value. */
export interface Setting {
  /** Like `--port <number>`; without a value it is a switch. */
  readonly flags: string;
  readonly help: string;
  /** Throws `InvalidArgumentError`: the parsers below. */
  readonly parse?: (text: string) => unknown;
  readonly choices?: readonly string[];
  /** What it is unless told. */
  readonly standard?: unknown;
  readonly mandatory?: boolean;
  /** Another one, by the name of its member, that cannot be given as well. */
  readonly conflicts?: string;
}

/** The setting that both programs have. */
export const LOG_LEVEL: Setting = {
  ...{ flags: '--log-level <level>', help: 'least severe level to log' },
  ...{ choices: LOG_LEVELS, standard: 'info' },
};

/** A program's command line. */
export interface Program {
  readonly name: string;
  readonly description: string;
  /** What `--version` prints, and what the help says about that. */
  readonly version: readonly [printed: string, help: string];
  /** What its variables begin with: with `ENVD_`, `ENVD_LOG_LEVEL` stands for `--log-level`. */
  readonly prefix: string;
  readonly settings: readonly Setting[];
  /** Switches without a variable. */
  readonly switches?: readonly Setting[];
}

/**
 * Reads flags, without node and script, and variables; a flag goes before its variable, and an empty variable is none.
 * Help and what is wrong are to be printed.
 */
export function readSettings<Settings extends object>(
  program: Program,
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): { readonly settings: Settings } | Printed {
  const output: string[] = [];
  const command = buildCommand(program, (text) => output.push(text));
  // commander reads the variables of the process alone: hand ours over as flags that come first instead.
  const variables = program.settings.flatMap(({ flags }) => flagOf(flags, env[variableOf(program, flags)]));
  try {
    command.parse([...variables, ...argv], { from: 'user' });
    return { settings: command.opts<Settings>() };
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return { exitCode: error.exitCode === 0 ? 0 : 2, output: output.join('') };
  }
}

function buildCommand(program: Program, print: (text: string) => void): Command {
  const [version, help] = program.version;
  const command = new Command(program.name)
    .description(program.description)
    .version(version, '-V, --version', help)
    .allowExcessArguments(false)
    .configureOutput({ writeOut: print, writeErr: print })
    .exitOverride();
  for (const flag of program.switches ?? []) command.addOption(optionOf(flag, ''));
  for (const setting of program.settings) {
    const value = isSwitch(setting.flags) ? '=1' : '';
    command.addOption(optionOf(setting, ` (${variableOf(program, setting.flags)}${value})`));
  }
  return command;
}

function optionOf({ flags, help, parse, choices, standard, mandatory, conflicts }: Setting, more: string) {
  const option = new Option(flags, help + more).makeOptionMandatory(mandatory ?? false);
  if (choices) option.choices(choices);
  if (parse) option.argParser(parse);
  if (standard !== undefined) option.default(standard);
  if (conflicts) option.conflicts(conflicts);
  return option;
}

function variableOf({ prefix }: Program, flags: string): string {
  return prefix + nameOf(flags).slice(2).replaceAll('-', '_').toUpperCase();
}

function flagOf(flags: string, value: string | undefined): string[] {
  if (value === undefined || value === '') return [];
  if (!isSwitch(flags)) return [`${nameOf(flags)}=${value}`];
  return value === '0' || value === 'false' ? [] : [nameOf(flags)];
}

function nameOf(flags: string): string {
  return flags.split(' ', 1)[0] ?? '';
}

function isSwitch(flags: string): boolean {
  return !flags.includes(' ');
}

/** A TCP port; 0 stands for a free one. */
export function parsePort(text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65535) return port;
  throw new InvalidArgumentError('It must be a whole number from 0 to 65535.');
}

export function parseBytes(text: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('It must be a whole number of bytes.');
}

/** A number of things, at least 1. */
export function parseCount(text: string): number {
  if (/^\d{1,8}$/.test(text) && Number(text) > 0) return Number(text);
  throw new InvalidArgumentError('It must be a whole number, at least 1.');
}

export function parseSeconds(text: string): number {
  if (/^\d{1,8}$/.test(text) && Number(text) > 0) return Number(text);
  throw new InvalidArgumentError('It must be a whole number of seconds, at least 1.');
}

/** A URL of one of these schemes (`http:`), with a user and password only where that is allowed. */
export function parseUrl(schemes: readonly string[], credentials: 'allowed' | 'refused', sentence: string) {
  return (text: string): string => {
    const { protocol = '', username = '', password = '' } = URL.parse(text) ?? {};
    if (schemes.includes(protocol) && (credentials === 'allowed' || username + password === '')) return text;
    throw new InvalidArgumentError(sentence);
  };
}

/** Text of a form; the sentence says of which. */
export function matching(form: RegExp, sentence: string): (text: string) => string {
  return (text) => {
    if (form.test(text)) return text;
    throw new InvalidArgumentError(sentence);
  };
}

export const nonEmpty = matching(/./s, 'It must not be empty.');
/** An absolute path. */
export const parsePath = matching(/^\//, 'It must be an absolute path.');
