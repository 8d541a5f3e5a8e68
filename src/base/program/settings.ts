import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** The result of reading the command line: a configuration to run with, or output to print before the exit. */
export type Invocation<Config> = { readonly run: Config } | Printed;

interface Printed {
  readonly exitCode: 0 | 2;
  readonly output: string;
}

/** This is PATH when the environment has none. */
export const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** A flag of the command line. */
export interface Setting {
  /** The flag as commander reads it, such as `--port <number>`. A switch has no value. */
  readonly flags: string;
  readonly help: string;
  /** Returns the value; commander would replace null and undefined by ''. Throws `InvalidArgumentError`. */
  readonly parse?: (text: string) => NonNullable<unknown>;
  readonly choices?: readonly string[];
  readonly defaultValue?: unknown;
  /** The text that the help shows for a default that is neither text nor a number. */
  readonly defaultText?: string;
  readonly mandatory?: boolean;
  /** The member name of a setting that excludes this one. */
  readonly conflicts?: string;
  /** The heading that the help lists it under; default: `Options:`. */
  readonly group?: string;
}

/** Settings that the help lists below one heading. */
export function grouped(heading: string, settings: readonly Setting[]): readonly Setting[] {
  return settings.map((each) => ({ ...each, group: `${heading}:` }));
}

/** Returns a flag whose value is parsed. */
export function setting(
  flags: string,
  help: string,
  parse: NonNullable<Setting['parse']>,
  defaultValue?: unknown,
): Setting {
  return { flags, help, parse, defaultValue };
}

/** Both programs have this setting. */
export const LOG_LEVEL: Setting = {
  flags: '--log-level <level>',
  help: 'log messages of this level and of more severe ones',
  choices: LOG_LEVELS,
  defaultValue: 'info',
};

/** A program's command line. */
export interface Program {
  readonly name: string;
  readonly description: string;
  /** The output of `--version`, and its line in the help. */
  readonly version: readonly [printed: string, help: string];
  /** The prefix of environment variables: with `ENVD_`, the variable `ENVD_LOG_LEVEL` sets `--log-level`. */
  readonly prefix: string;
  readonly settings: readonly Setting[];
  /** These flags have no environment variable. */
  readonly switches?: readonly Setting[];
}

/**
 * Reads flags (`argv` without node and script) and environment variables. A flag overrides its variable; an empty variable
 * counts as unset. Returns the settings, or the output to print for `--help`, `--version` and errors.
 */
export function readSettings<Settings extends object>(
  program: Program,
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): { readonly settings: Settings } | Printed {
  const output: string[] = [];
  const command = buildCommand(program, (text) => output.push(text));
  // commander reads only the environment of the process. So variables become flags, before the flags that override them.
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

function optionOf(
  { flags, help, parse, choices, defaultValue, defaultText, mandatory, conflicts, group }: Setting,
  more: string,
) {
  const option = new Option(flags, help + more).makeOptionMandatory(mandatory ?? false);
  if (choices) option.choices(choices);
  if (parse) option.argParser(parse);
  if (defaultValue !== undefined) option.default(defaultValue, defaultText);
  if (conflicts) option.conflicts(conflicts);
  if (group) option.helpGroup(group);
  return option;
}

/** Returns the name of the variable that sets a flag. */
export function variableOf({ prefix }: Program, flags: string): string {
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

/** Returns a parser of whole numbers from `least` to `most`. `sentence` is the error message. */
export function wholeNumberFrom(least: number, most: number, sentence: string): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    throw new InvalidArgumentError(sentence);
  };
}

/** Parses a TCP port; 0: any free port. */
export const parsePort = wholeNumberFrom(0, 65535, 'It must be a whole number from 0 to 65535.');
export const parseBytes = wholeNumberFrom(0, 1e10 - 1, 'It must be a whole number of bytes.');
export const parseCount = wholeNumberFrom(1, 1e8 - 1, 'It must be a whole number, at least 1.');
export const parseDigit = wholeNumberFrom(0, 9, 'It must be a whole number from 0 to 9.');
/** A wait has at most this time, in seconds. A timer that is set to more than 24.8 days would end at once. */
const DAY = 86_400;
/** Parses how long something is waited for. */
export const parseWait = wholeNumberFrom(
  1,
  DAY,
  `It must be a whole number of seconds from 1 to ${DAY}, a day.`,
);
/** Accepts 0, too. */
export const parseWaitOrNone = wholeNumberFrom(
  0,
  DAY,
  `It must be a whole number of seconds from 0 to ${DAY}, a day.`,
);
/** Parses how long something is kept. */
export const parseLifetime = wholeNumberFrom(1, 1e8 - 1, 'It must be a whole number of seconds, at least 1.');
/** Accepts 0, too. */
export const parseLifetimeOrNone = wholeNumberFrom(0, 1e8 - 1, 'It must be a whole number of seconds.');

/** Returns a parser of text that `read` accepts, which returns null for a wrong one. `sentence` is the error message. */
export function parseAs<T extends NonNullable<unknown>>(read: (text: string) => T | null, sentence: string) {
  return (text: string): T => {
    const value = read(text);
    if (value !== null) return value;
    throw new InvalidArgumentError(sentence);
  };
}

/** Returns a parser of lists that commas separate. `read` returns null for a wrong item. `sentence` is the error message. */
export function parseList<T>(read: (item: string) => T | null, sentence: string) {
  return (text: string): readonly T[] =>
    text.split(',').map((item) => {
      const value = read(item.trim());
      if (value === null) throw new InvalidArgumentError(sentence);
      return value;
    });
}

/** Returns a parser of URLs with one of `schemes`, such as `http:`. `sentence` is the error message. */
export function parseUrl(schemes: readonly string[], credentials: 'allowed' | 'refused', sentence: string) {
  return (text: string): string => {
    const { protocol = '', username = '', password = '' } = URL.parse(text) ?? {};
    if (schemes.includes(protocol) && (credentials === 'allowed' || username + password === '')) return text;
    throw new InvalidArgumentError(sentence);
  };
}

/** Parses a host name, to which labels may be prepended, and returns it in lower case. Other letters must be coded as `xn--`. */
export function parseDomain(text: string): string {
  const label = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
  const form = new RegExp(`^(?=.{1,189}$)${label}(?:\\.${label})*$`);
  if (form.test(text.toLowerCase())) return text.toLowerCase();
  throw new InvalidArgumentError('It must be a host name such as sandboxes.example.com.');
}

/** Returns a parser of text that matches `form`. `sentence` is the error message. */
export function matching(form: RegExp, sentence: string): (text: string) => string {
  return (text) => {
    if (form.test(text)) return text;
    throw new InvalidArgumentError(sentence);
  };
}

export const nonEmpty = matching(/./s, 'It must not be empty.');
export const parsePath = matching(/^\//, 'It must be an absolute path.');
