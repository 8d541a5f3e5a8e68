import { getSystemErrorMap } from 'node:util';
import { EnvdError, type ErrorKind, isSystemError } from '../../../base/errors.ts';
import { decodeName } from '../paths/names.ts';
import { exhaustionBy } from '../system/errno.ts';
import { native } from '../system/native.ts';
import type { User } from '../system/users.ts';
import { lineHint } from './executable.ts';

export interface ProcessExit {
  /** The exit code, or null when a signal ended the process. */
  readonly code: number | null;
  /** The number of the signal, or null when the process exited. */
  readonly signal: number | null;
  readonly userMicros: number;
  readonly systemMicros: number;
}

/** The limits of each process below the started one, too. Null means the daemon's own, or nice value 0. */
export interface LaunchLimits {
  readonly openFiles: number | null;
  readonly fileBytes: number | null;
  readonly nice: number | null;
}

/** Describes a process to start. All names and paths are resolved. */
export interface Launch {
  readonly file: string;
  /** The arguments, including argv[0]. */
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly user: User;
  /** The process is started in this new cgroup v2 directory, which the caller removes. Null means the daemon's own. */
  readonly cgroup: string | null;
  /** With limits, the cgroup has been made already. */
  readonly limits?: LaunchLimits | null;
  /** The program must run within this time, in milliseconds. */
  readonly limitMs: number;
}

/** Describes a started process. `exit` settles once it has been reaped. */
export interface Spawned {
  readonly pid: number;
  /** The descriptor is open until `exit` settles. It is null when there is none. */
  readonly pidfd: number | null;
  /** If this is false, another program has started the process, and others may reap it. */
  readonly isChild: boolean;
  /** If this is true, the process had ended when its start was reported, and `exit` settles in this turn. */
  readonly isOver: boolean;
  readonly exit: Promise<ProcessExit>;
}

/** The descriptors of the daemon's ends of a process' pipes. The caller owns them. */
export interface Pipes {
  /** Null when stdin is /dev/null. */
  readonly stdin: number | null;
  readonly stdout: number;
  readonly stderr: number;
}

/** Says that the parent of the cgroup to create does not exist. */
export class NoCgroup extends EnvdError {}

/** Says that the working directory does not exist. */
export class NoDirectory extends EnvdError {}

/** Says that the kernel refuses to execute the file. */
export class NotExecuted extends EnvdError {
  /** Tells whether the file is missing, or the interpreter that it needs. */
  get isMissing(): boolean {
    return this.kind === 'not_found';
  }
}

/** These priorities do not depend on the daemon's own. The I/O priority is a level of the best-effort class. */
const NICE = 0;
const IO_PRIORITY = 4;
const OOM_SCORE_ADJUSTMENT = 100;
/** The number that stands for no descriptor. */
const NONE = -1;

/**
 * Starts a process on the slave descriptor of a terminal, which the caller keeps. Throws `invalid_argument`,
 * `not_found` or `permission_denied` with the errno when the command cannot be executed or its cwd not entered,
 * `unavailable` below a frozen cgroup, `resource_exhausted` at a limit of processes or descriptors, and
 * `deadline_exceeded` when the program does not run within the limit.
 */
export async function spawn(launch: Launch, terminal: number): Promise<Spawned> {
  return (await start(launch, terminal, false)).process;
}

/** Starts a process on pipes. Without `withStdin` its stdin is /dev/null. Throws as `spawn` does. */
export function spawnWithPipes(launch: Launch, withStdin: boolean): Promise<Started> {
  return start(launch, NONE, withStdin);
}

interface Started {
  readonly process: Spawned;
  /** On a terminal there are none, and their numbers mean nothing. */
  readonly pipes: Pipes;
}

function start(launch: Launch, terminal: number, withStdin: boolean): Promise<Started> {
  const started = Promise.withResolvers<Started>();
  const exit = Promise.withResolvers<ProcessExit>();
  const [numbers, strings] = encode(launch, terminal, withStdin);
  let failing: Launch | null = launch;
  native.spawn(numbers, strings, (event, a, b, c, d, pidfd) => {
    if (event === 'started' || event === 'ran') {
      // This callback lives as long as the process, and the arguments of the launch may have megabytes.
      failing = null;
      const process = { pid: a, pidfd, isChild: true, isOver: event === 'ran', exit: exit.promise };
      started.resolve({ process, pipes: { stdin: b === NONE ? null : b, stdout: c, stderr: d } });
    } else if (event === 'exited' || event === 'signaled') exit.resolve(exitFrom(event, a, b, c));
    else if (failing !== null) started.reject(describe(event, a, failing));
  });
  return started.promise;
}

/** The exit of a process that is not a child of this process, when nobody can tell it any more. */
export const UNKNOWN_EXIT: ProcessExit = { code: null, signal: null, userMicros: 0, systemMicros: 0 };

/**
 * Waits for the end of a process that an earlier program has started, and reaps it if it is a child. The result owns
 * `pidfd`, which may be null only for a child. The exit of a process that is not a child is known on Linux 6.15 and
 * later. The exit of one that cannot be followed is unknown.
 */
export function followProcess(pid: number, pidfd: number | null, isChild: boolean): Spawned {
  const exit = Promise.withResolvers<ProcessExit>();
  const spawned = { pid, isChild, isOver: false, exit: exit.promise };
  try {
    const followed = native.follow(pid, pidfd ?? NONE, (event, a, b, c) =>
      exit.resolve(event === 'unknown' ? UNKNOWN_EXIT : exitFrom(event, a, b, c)),
    );
    return { ...spawned, pidfd: followed };
  } catch (error) {
    if (!isSystemError(error)) throw error;
    // It is gone, or there is no descriptor or memory to follow it: others must not suffer from that.
    exit.resolve(UNKNOWN_EXIT);
    return { ...spawned, pidfd: null, isChild: false };
  }
}

/** Translates what `native.spawn` reports of an exit. */
function exitFrom(event: string, status: number, userMicros: number, systemMicros: number): ProcessExit {
  const exited = event === 'exited';
  return { code: exited ? status : null, signal: exited ? null : status, userMicros, systemMicros };
}

/** Returns the arguments of `native.spawn`. */
function encode(launch: Launch, terminal: number, withStdin: boolean): [Buffer, Buffer] {
  const { file, args, environment, cwd, user, cgroup, limits = null, limitMs } = launch;
  const variables = Object.keys(environment).map((name) => `${name}=${environment[name]}`);
  const nice = limits?.nice ?? NICE;
  const fileBytes = limits?.fileBytes ?? 0;
  const options = [terminal, Number(withStdin), nice, IO_PRIORITY, OOM_SCORE_ADJUSTMENT, limitMs];
  const counts = [args.length, variables.length];
  // An array of 32-bit numbers keeps the low half of each.
  const most = [Number(limits !== null), limits?.openFiles ?? 0, fileBytes, Math.floor(fileBytes / 2 ** 32)];
  const numbers = new Uint32Array([user.uid, user.gid, ...options, ...counts, ...most, ...user.groups]);
  // Paths are encoded as names, and arguments and variables as texts.
  const paths = [cgroup ?? '', file, cwd, ''].join('\0');
  const texts = [...args, ...variables, ''].join('\0');
  return [Buffer.from(numbers.buffer), Buffer.concat([decodeName(paths), Buffer.from(texts)])];
}

/** Translates the failure of a step of `native.spawn` to an error about the request. */
function describe(step: string, errno: number, launch: Launch): EnvdError {
  const [code, text] = getSystemErrorMap().get(-errno) ?? [`E${errno}`, 'unknown error'];
  const reason = `${code}: ${text}`;
  if (step === 'chdir') return describeDirectory(code, reason, launch);
  if (code === 'ETIMEDOUT') {
    const text = `cannot start '${launch.file}': it did not run within ${launch.limitMs / 1000} s`;
    return new EnvdError('deadline_exceeded', `${text}: another process stopped it, or a file system hangs`);
  }
  // The file is not at fault then, so its interpreter would mislead.
  if (step === 'execve' && code === 'E2BIG')
    return new EnvdError('invalid_argument', `cannot start '${launch.file}': ${reason}`);
  if (step === 'execve') {
    const isMissing = code === 'ENOENT';
    const hint = isMissing ? lineHint(launch.args[0] ?? '') : '';
    const text = `cannot start '${launch.file}': ${reason}${hint}`;
    return new NotExecuted(isMissing ? 'not_found' : 'invalid_argument', text);
  }
  if (step === 'frozen')
    return new EnvdError('unavailable', 'cannot start a process: the workload is frozen');
  if (step === 'cgroup' && code === 'ENOENT') {
    return new NoCgroup('unavailable', `cannot start '${launch.file}': its cgroup is gone`);
  }
  // clone3(2) fails with EAGAIN at pids.max, RLIMIT_NPROC or another limit of processes.
  const hint = code === 'EAGAIN' ? ' (too many processes: --max-tasks, or a limit of the system)' : '';
  return new EnvdError(kindOf(code), `cannot start '${launch.file}': ${step}: ${reason}${hint}`);
}

function kindOf(code: string): ErrorKind {
  if (code === 'EAGAIN') return 'resource_exhausted';
  return exhaustionBy(code) ?? 'internal';
}

function describeDirectory(code: string, reason: string, { cwd, user }: Launch): EnvdError {
  if (code === 'ENOENT') return new NoDirectory('invalid_argument', `cwd '${cwd}' does not exist`);
  if (code === 'ENOTDIR') return new NoDirectory('invalid_argument', `cwd '${cwd}' is not a directory`);
  const kind = code === 'EACCES' ? 'permission_denied' : 'invalid_argument';
  return new EnvdError(kind, `cannot enter cwd '${cwd}' as user '${user.name}': ${reason}`);
}
