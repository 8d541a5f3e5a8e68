import { EnvdError } from '../../../../base/errors.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { resolvePath } from '../../../linux/paths/paths.ts';
import { assertAnswers, findExecutable, mountsMayHang } from '../../../linux/processes/executable.ts';
import { describeInterpreter } from '../../../linux/processes/interpreter.ts';
import type { TerminalSize } from '../../../linux/processes/pty.ts';
import { type Launch, NoDirectory, NotExecuted } from '../../../linux/processes/spawn.ts';
import type { User } from '../../../linux/system/users.ts';
import type { Guest } from '../../guest/guest.ts';
import type { ProcessLimits } from '../limits/limits.ts';
import { buildEnvironment, IN_TERMINAL } from './environment.ts';
import type { ManagedProcess } from './process.ts';
import type { ProcessConfig } from './process-config.ts';

const BASH = '/bin/bash';
const SH = '/bin/sh';

/** What was prepared for a start. It is disposed of when the process was started, or could not be. */
export interface Prepared extends Disposable {
  /** Is called when the process runs, before any of its output was delivered. */
  started(process: ManagedProcess): void;
}

/** Describes what a client asks to start. */
export interface StartRequest {
  readonly config: ProcessConfig;
  readonly user: User;
  readonly tag: string | null;
  /** The size of the terminal; null: the process gets pipes. */
  readonly terminal: TerminalSize | null;
  /** If this is false, stdin is /dev/null. It has no effect on a terminal. */
  readonly stdin: boolean;
  /** The client's idempotency key, or null; see `ProcessTable.start`. */
  readonly startId: string | null;
  /** Without this member, the process has no limits of its own. */
  readonly limits?: ProcessLimits;
  /** Is called unless the process of the start id is there already. */
  readonly prepare?: () => Promise<Prepared>;
  /** Throws when nobody waits for the start any more, so that a search for the program ends. */
  readonly throwIfAborted?: () => void;
}

/** A launch without its cgroup and its limits. */
export type Plan = Omit<Launch, 'cgroup' | 'limitMs' | 'limits'>;

/** A start needs this besides its request. */
export interface LaunchPlace {
  readonly guest: Guest;
  /** The daemon's PATH. */
  readonly path: string;
  readonly lanes: Lanes;
}

/** Resolves a request to program, arguments, environment and directory. Throws the first error. */
export async function planStart(request: StartRequest, { guest, path, lanes }: LaunchPlace): Promise<Plan> {
  const { config, user, throwIfAborted } = request;
  if (config.command === '') throw new EnvdError('invalid_argument', 'cmd is empty');
  const cwd = resolvePath(config.cwd ?? '', user, guest.defaultWorkdir);
  const platform = request.terminal ? { ...IN_TERMINAL, ...guest.environment } : guest.environment;
  const environment = buildEnvironment(path, user, platform, config.environment, cwd);
  assertNoNulBytes([config.command]);
  assertNoNulBytes(config.args);
  assertVariables(environment);
  const file = await findExecutable(config.command, environment.PATH, cwd, user, lanes, throwIfAborted);
  if (mountsMayHang()) {
    const paths = config.command.includes('/') ? [cwd, file] : [cwd];
    await Promise.all(paths.map((each) => assertAnswers(each, lanes)));
  }
  return { file, args: [config.command, ...config.args], environment, cwd, user };
}

/**
 * Returns a plan that replaces a failed one. It starts in `/` when no directory was asked for and the user's home is
 * missing, and it starts /bin/sh when there is no /bin/bash. Otherwise it throws the error, with the interpreter that
 * the file needs.
 */
export async function planAgain(
  request: StartRequest,
  place: LaunchPlace,
  plan: Plan,
  error: unknown,
): Promise<Plan> {
  const { config } = request;
  const asksForNone = !config.cwd && place.guest.defaultWorkdir === null;
  if (error instanceof NoDirectory && asksForNone && plan.cwd !== '/')
    return planStart({ ...request, config: { ...config, cwd: '/' } }, place);
  if (!(error instanceof NotExecuted)) throw error;
  if (error.isMissing && plan.file === BASH) return { ...plan, file: SH, args: [SH, ...plan.args.slice(1)] };
  const interpreter = await describeInterpreter(plan.file, place.lanes);
  if (interpreter === null) throw error;
  const hint = interpreter.endsWith("\\r'") ? ', a line of Windows: end it without \\r' : '';
  throw new NotExecuted(error.kind, `${error.message}: ${interpreter}${hint}`, { cause: error });
}

function assertNoNulBytes(texts: readonly string[]): void {
  if (texts.some((text) => text.includes('\0')))
    throw new EnvdError('invalid_argument', 'cmd, args and envs cannot contain NUL bytes');
}

function assertVariables(environment: Readonly<Record<string, string>>): void {
  const names = Object.keys(environment);
  assertNoNulBytes(names);
  assertNoNulBytes(Object.values(environment));
  const bad = names.find((name) => name === '' || name.includes('='));
  if (bad === undefined) return;
  const text = `invalid name of an environment variable: '${bad}': it must not be empty or contain '='`;
  throw new EnvdError('invalid_argument', text);
}
