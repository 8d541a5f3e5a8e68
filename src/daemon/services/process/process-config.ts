import { createHash } from 'node:crypto';
import { EnvdError } from '../../../base/errors.ts';
import { requirePathLength } from '../../os/paths.ts';

/** The command that a client asked for, as List shows it. */
export interface ProcessConfig {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string | null;
}

/**
 * The longest argument, and the longest variable with its name, in bytes. Source: MAX_ARG_STRLEN, which counts the NUL, in
 * linux/binfmts.h.
 */
const MAX_ARGUMENT_BYTES = 131_071;
/**
 * The most bytes of all arguments and variables, each with its NUL and a pointer: three quarters of 8 MiB, whatever the limit
 * of the stack is. Source: execve(2), "Limits on size of arguments and environment".
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

/** The most characters of a command that are kept when it has ended: it may have megabytes. */
const SHORT_LENGTH = 1024;

/** What is kept of an ended process' command: enough to tell whether a repeated start asks for the same one. */
export function shortened(config: ProcessConfig): ProcessConfig {
  const { command, args, cwd } = config;
  const environment = Object.entries(config.environment);
  const texts = [command, ...args, ...environment.flat(), cwd ?? ''];
  if (texts.reduce((sum, text) => sum + text.length, 0) <= SHORT_LENGTH && texts.length <= SHORT_LENGTH)
    return config;
  const whole = JSON.stringify([command, args, environment.toSorted(), cwd]);
  const digest = createHash('sha256').update(whole).digest('hex');
  return { command: `sha256:${digest}`, args: [], environment: {}, cwd: null };
}
