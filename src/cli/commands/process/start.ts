import { randomUUID } from 'node:crypto';
import type { Connection } from '../../connection/connection.ts';
import { isUnknownSandbox } from '../../connection/failures.ts';
import { Failure, usageError } from '../../output/failure.ts';
import { quoted } from '../../output/quoted.ts';
import type { Follower, StreamCall } from '../../process/follow.ts';
import type { OptionSpec } from '../spec/description.ts';
import { parseAssignment, parseWaiting } from '../spec/parsers.ts';

/** Commands that start a process have these options. */
export interface StartOptions {
  readonly tag?: string;
  readonly timeout?: number;
  readonly env?: readonly (readonly [string, string])[];
  readonly cwd?: string;
  readonly workdir?: string;
}

export const START_OPTIONS: readonly OptionSpec[] = [
  { flags: '--tag <name>', help: 'a name for the process, which other commands take instead of its pid' },
  {
    flags: '--timeout <time>',
    help: 'kill the process after this time, such as 90, 10m or 2h',
    parse: parseWaiting,
  },
  {
    flags: '-e, --env <NAME=VALUE>',
    help: 'set a variable; may be repeated',
    parse: parseAssignment,
    isRepeated: true,
  },
  { flags: '-C, --cwd <directory>', help: 'the working directory' },
  { flags: '-w, --workdir <directory>', help: 'the same as --cwd' },
  { flags: '-u, --user <name>', help: 'the user in the sandbox; default: the one of the daemon' },
];

export const EXITS_OF_PROCESSES = [
  ['0 to 119', 'The exit code of the process itself.'],
  ['128 + N', 'Signal N ended the process.'],
] as const;

/** The values for a call of `Start`. */
export interface StartCall {
  readonly process: { cmd: string; args: string[]; envs: Record<string, string>; cwd?: string };
  readonly tag?: string;
  readonly timeoutMs: number | null;
  readonly limits?: {
    readonly memoryBytes?: bigint;
    readonly cpuPercent?: number;
    readonly tasks?: number;
    readonly openFiles?: number;
    readonly nice?: number;
  };
  readonly keepOutput?: { readonly seconds: bigint };
}

/** Returns the request that starts a command. */
export function startRequest(
  [cmd = '', ...args]: readonly string[],
  { tag, timeout, env = [], cwd: given, workdir }: StartOptions,
): StartCall {
  if (given !== undefined && workdir !== undefined)
    throw usageError('--cwd and --workdir exclude each other: give one of them');
  const cwd = given ?? workdir;
  const process = { cmd, args, envs: Object.fromEntries(env), ...(cwd !== undefined && { cwd }) };
  return { process, ...(tag !== undefined && { tag }), timeoutMs: timeout ?? null };
}

/** Opens the stream of a start. The time limit belongs to the process, so the call itself has none. */
export function openStart(
  { processes }: Connection,
  { timeoutMs, ...request }: StartCall & { stdin?: boolean; pty?: { size: { cols: number; rows: number } } },
  { headers, signal }: StreamCall,
) {
  const limit = timeoutMs === null ? {} : { 'Connect-Timeout-Ms': String(timeoutMs) };
  return processes.start(
    { ...request, startId: randomUUID() },
    { headers: { ...headers, ...limit }, signal },
  );
}

/**
 * Runs `work`. If the command does not exist or cannot be executed, throws a failure with the exit code of a shell (127 or
 * 126).
 */
export async function explainStart(
  follower: Follower,
  { process: { cmd, args } }: StartCall,
  work: () => Promise<number>,
): Promise<number> {
  try {
    return await work();
  } catch (error) {
    if (follower.pid !== null || !(error instanceof Failure) || isUnknownSandbox(error)) throw error;
    if (error.reason === 'not_found' || /ENOENT|no such file/i.test(error.message))
      throw new Failure('no_such_command', error.message + adviceFor(cmd, args));
    if (/EACCES|ENOEXEC|permission denied|not executable/i.test(error.message))
      throw new Failure('not_executable', error.message);
    throw error;
  }
}

/** Returns what may have been meant by one word with blanks or characters of a shell. */
function adviceFor(cmd: string, args: readonly string[]): string {
  if (args.length > 0 || !/[\s|&;<>$`*?(){}]/.test(cmd)) return '';
  return `; for a line of shell, run \`envctl run sh -c ${quoted(cmd)}\``;
}
