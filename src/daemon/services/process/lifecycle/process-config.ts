import { createHash } from 'node:crypto';
import { EnvdError } from '../../../../base/errors.ts';
import { requirePathLength } from '../../../linux/paths/paths.ts';

/** The command that a client asked for, as List shows it. */
export interface ProcessConfig {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string | null;
}

/** An argument, or a variable with its name, has at most this many bytes: MAX_ARG_STRLEN (linux/binfmts.h) less the NUL. */
const MAX_ARGUMENT_BYTES = 131_071;
/**
 * All arguments and variables together have at most this many bytes, each with its NUL and a pointer. The limit is
 * three quarters of 8 MiB, whatever the limit of the stack is. Source: execve(2), "Limits on size of arguments and
 * environment".
 */
const MAX_ARGUMENTS_BYTES = 6 * 1024 * 1024;
const POINTER_BYTES = 8;

/** Throws `invalid_argument` for a command that execve(2) never takes, before anything is done with its texts. */
export function requireExecutable({ command, args, environment, cwd }: ProcessConfig): void {
  requirePathLength(command, 'cmd');
  if (cwd !== null) requirePathLength(cwd, 'cwd');
  let sum = 0;
  const add = (what: string, length: number) => {
    if (length > MAX_ARGUMENT_BYTES) {
      const text = `${what} has ${length} bytes: a program takes at most ${MAX_ARGUMENT_BYTES} in one, use a file`;
      throw new EnvdError('invalid_argument', text);
    }
    sum += length + 1 + POINTER_BYTES;
    if (sum <= MAX_ARGUMENTS_BYTES) return;
    const text = `args and envs have more than ${MAX_ARGUMENTS_BYTES} bytes: a program takes no more, use a file`;
    throw new EnvdError('invalid_argument', text);
  };
  for (const [index, text] of args.entries()) add(`args[${index}]`, Buffer.byteLength(text));
  for (const name of Object.keys(environment))
    add(`variable '${name}'`, Buffer.byteLength(name) + 1 + Buffer.byteLength(environment[name] ?? ''));
}

/** A command as it is kept while its process runs, and for 30 s after that. */
export interface KeptConfig extends ProcessConfig {
  /** Null if the command is whole, or else the digest of the whole one. It is empty if nobody needs it. */
  readonly digest: string | null;
}

/** This many characters are kept of the program with its arguments, of the variables, and of the directory. */
const KEPT_LENGTH = 1024;

/**
 * Returns what List shows of a command. Of each of its parts that is the first KiB, and how long the rest is.
 * `isRepeatable` says whether later starts are compared with it.
 */
export function keptOf(config: ProcessConfig, isRepeatable: boolean): KeptConfig {
  const { command, args, environment, cwd } = config;
  const variables = Object.entries(environment);
  const isWhole =
    isShort([command, ...args]) && isShort(variables.flat()) && (cwd === null || isShort([cwd]));
  if (isWhole) return { command, args, environment, cwd, digest: null };
  const [shownCommand = '', ...shownArgs] = firstOf([command, ...args]);
  const names = firstOf(variables.map(([name, value]) => `${name}=${value}`));
  return {
    command: shownCommand,
    args: shownArgs,
    environment: Object.fromEntries(names.map(parseVariable)),
    cwd: cwd === null ? null : start(cwd, KEPT_LENGTH),
    digest: isRepeatable ? digestOf(config) : '',
  };
}

/** Returns what is kept when the process has ended: enough to tell whether a repeated start has the same command. */
export function shortened(config: KeptConfig): KeptConfig {
  if (config.digest === null) return config;
  return { command: '', args: [], environment: {}, cwd: null, digest: config.digest };
}

function isShort(texts: readonly string[]): boolean {
  let length = texts.length;
  for (const text of texts) length += text.length;
  return length <= KEPT_LENGTH;
}

/** Returns the first texts, cuts the last of them, and adds one that says how much is left out. */
function firstOf(texts: readonly string[]): string[] {
  const shown: string[] = [];
  let left = KEPT_LENGTH;
  for (const text of texts) {
    if (left <= 0) break;
    shown.push(start(text, left));
    left -= text.length + 1;
  }
  const rest = texts.slice(shown.length);
  if (rest.length === 0) return shown;
  const bytes = rest.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  return [...shown, `… (${rest.length} more, ${bytes} bytes)`];
}

/** Returns the start of a text and its length. It copies the start, because a substring in V8 keeps the whole text. */
function start(text: string, length: number): string {
  if (text.length <= length) return text;
  return `${Buffer.from(text.slice(0, length))}… (${Buffer.byteLength(text)} bytes)`;
}

function parseVariable(text: string): [name: string, value: string] {
  const end = text.indexOf('=');
  return end < 0 ? [text, ''] : [text.slice(0, end), text.slice(end + 1)];
}

function digestOf({ command, args, environment, cwd }: ProcessConfig): string {
  const whole = JSON.stringify([command, args, Object.entries(environment).toSorted(), cwd]);
  return createHash('sha256').update(whole).digest('hex');
}
