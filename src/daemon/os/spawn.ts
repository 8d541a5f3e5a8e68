import { EnvdError, type ErrorKind, isSystemError, type SystemError } from '../../base/errors.ts';
import { exhaustionOf } from './errno.ts';
import { lineHint } from './executable.ts';
import { native, type ProcessExit, type SpawnOptions, type StartedProcess } from './native.ts';
import type { User } from './users.ts';

export type { ProcessExit } from './native.ts';

/** A process to start; all names and paths are resolved. */
export interface Launch {
  readonly file: string;
  /** argv, including argv[0]. */
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly user: User;
  /** The cgroup v2 directory to create and start in, which the caller removes; null: the daemon's own. */
  readonly cgroup: string | null;
}

/** A started process: `exit` settles once it has been reaped. */
export interface Spawned {
  readonly pid: number;
  readonly exit: Promise<ProcessExit>;
}

/** Descriptors of the daemon's ends of a process' pipes; the caller owns them. */
export interface Pipes {
  /** Null when stdin is /dev/null. */
  readonly stdin: number | null;
  readonly stdout: number;
  readonly stderr: number;
}

/** The parent of the cgroup to create does not exist. */
export class NoCgroup extends EnvdError {}

/** Defaults for every process, independent of the daemon's own priorities. */
const ORDINARY = { nice: 0, ioPriority: 4, oomScoreAdj: 100 };

/**
 * Starts a process on the slave descriptor of a terminal, which the caller keeps. Throws `invalid_argument`,
 * `not_found` or `permission_denied` with the errno when the command cannot be executed or its cwd not entered,
 * `unavailable` below a frozen cgroup, `resource_exhausted` at a limit of processes or descriptors.
 */
export async function spawn(launch: Launch, terminal: number): Promise<Spawned> {
  const [{ pid }, exit] = await start(launch, { terminal, stdin: false });
  return { pid, exit };
}

/** Starts a process on pipes; without `withStdin` its stdin is /dev/null. Throws as `spawn` does. */
export async function spawnWithPipes(
  launch: Launch,
  withStdin: boolean,
): Promise<{ process: Spawned; pipes: Pipes }> {
  const [{ pid, stdin, stdout, stderr }, exit] = await start(launch, { terminal: null, stdin: withStdin });
  if (stdout === null || stderr === null) throw new EnvdError('internal', `process ${pid} has no pipes`);
  return { process: { pid, exit }, pipes: { stdin, stdout, stderr } };
}

async function start(
  launch: Launch,
  stdio: Pick<SpawnOptions, 'terminal' | 'stdin'>,
): Promise<[StartedProcess, Promise<ProcessExit>]> {
  const { promise: exit, resolve } = Promise.withResolvers<ProcessExit>();
  const { file, args, cwd, user, cgroup } = launch;
  const { uid, gid, groups } = user;
  const env = Object.entries(launch.environment).map(([name, value]) => `${name}=${value}`);
  const options = { file, args, env, cwd, uid, gid, groups, cgroup, ...stdio, ...ORDINARY };
  try {
    return [await native.spawn(options, resolve), exit];
  } catch (error) {
    throw describe(error, launch);
  }
}

/** Translates an error of the addon to one about the request. */
function describe(error: unknown, launch: Launch): unknown {
  if (!isSystemError(error)) return error;
  const step = 'step' in error ? error.step : '';
  const reason = error.message.replace(/, spawn .*$/s, '');
  if (step === 'chdir') {
    const kind = error.code === 'EACCES' ? 'permission_denied' : 'invalid_argument';
    return new EnvdError(kind, describeDirectory(error.code, reason, launch), { cause: error });
  }
  if (step === 'execve') {
    const isMissing = error.code === 'ENOENT';
    const hint = isMissing ? lineHint(launch.args[0] ?? '') : '';
    const text = `cannot start '${launch.file}': ${reason}${hint}`;
    return new EnvdError(isMissing ? 'not_found' : 'invalid_argument', text, { cause: error });
  }
  if (step === 'frozen')
    return new EnvdError('unavailable', 'cannot start a process: the workload is frozen', { cause: error });
  if (step === 'cgroup' && error.code === 'ENOENT') {
    return new NoCgroup('unavailable', `cannot start '${launch.file}': its cgroup is gone`, { cause: error });
  }
  return new EnvdError(kindOf(error), `cannot start '${launch.file}': ${step}: ${reason}`, { cause: error });
}

function kindOf(error: SystemError): ErrorKind {
  // clone3(2): RLIMIT_NPROC, pids.max or another limit of processes.
  if (error.code === 'EAGAIN') return 'resource_exhausted';
  return exhaustionOf(error) ?? 'internal';
}

function describeDirectory(code: string, reason: string, { cwd, user }: Launch): string {
  if (code === 'ENOENT') return `cwd '${cwd}' does not exist`;
  if (code === 'ENOTDIR') return `cwd '${cwd}' is not a directory`;
  return `cannot enter cwd '${cwd}' as user '${user.name}': ${reason}`;
}
