import { closeSync, fchownSync, openSync } from 'node:fs';
import { EnvdError, isSystemError } from '../base/errors.ts';
import { native, type ProcessExit } from './native.ts';
import { createPipe } from './pipes.ts';
import type { User } from './users.ts';

export type { ProcessExit } from './native.ts';

/** What to start, as whom and where; nothing is looked up or expanded any more. */
export interface Launch {
  readonly file: string;
  /** argv, the first included. */
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly user: User;
  /** The cgroup v2 directory to make and to start in, or null for the daemon's own; it is the caller's to remove. */
  readonly cgroup: string | null;
}

/** A started process: `exit` settles once it has been reaped. */
export interface Spawned {
  readonly pid: number;
  readonly exit: Promise<ProcessExit>;
}

/** The daemon's ends of a process' pipes: descriptors, which are the caller's. */
export interface Pipes {
  /** Null when stdin is /dev/null. */
  readonly stdin: number | null;
  readonly stdout: number;
  readonly stderr: number;
}

// Every process is an ordinary one, whatever the daemon's own privileges are.
const NICE = 0;
const IO_PRIORITY = 4;
const OOM_SCORE_ADJ = 100;

/**
 * Starts a process on the given descriptors, which stay the caller's; the first is its terminal if `terminal`.
 * Throws `invalid_argument`, `not_found` or `permission_denied` with the errno when the command or its cwd cannot
 * be had, `unavailable` below a frozen cgroup, `resource_exhausted` when the kernel has no room for one more process.
 */
export async function spawn(
  launch: Launch,
  stdio: readonly [number, number, number],
  terminal: boolean,
): Promise<Spawned> {
  const { promise: exit, resolve } = Promise.withResolvers<ProcessExit>();
  const { file, args, cwd, user, cgroup } = launch;
  const pid = await native
    .spawn(
      {
        file,
        args,
        env: Object.entries(launch.environment).map(([name, value]) => `${name}=${value}`),
        cwd,
        uid: user.uid,
        gid: user.gid,
        groups: user.groups,
        stdio,
        terminal,
        cgroup,
        nice: NICE,
        ioPriority: IO_PRIORITY,
        oomScoreAdj: OOM_SCORE_ADJ,
      },
      resolve,
    )
    .catch((error: unknown) => {
      throw describe(error, launch);
    });
  return { pid, exit };
}

/** Starts a process on pipes of its own. */
export async function spawnWithPipes(
  launch: Launch,
  withStdin: boolean,
): Promise<{ process: Spawned; pipes: Pipes }> {
  const theirs: number[] = [];
  const ours: number[] = [];
  try {
    const stdin = withStdin ? createPipe() : null;
    theirs.push(stdin ? stdin[0] : openSync('/dev/null', 'r'));
    if (stdin) ours.push(stdin[1]);
    const [stdoutRead, stdoutWrite] = createPipe();
    theirs.push(stdoutWrite);
    ours.push(stdoutRead);
    const [stderrRead, stderrWrite] = createPipe();
    theirs.push(stderrWrite);
    ours.push(stderrRead);
    // So that the user can open them by name again: `echo x >/dev/stdout`.
    const { uid, gid } = launch.user;
    for (const fd of [stdin?.[0], stdoutWrite, stderrWrite]) if (fd !== undefined) fchownSync(fd, uid, gid);

    const process = await spawn(launch, [theirs[0] ?? -1, stdoutWrite, stderrWrite], false);
    ours.length = 0;
    return {
      process,
      pipes: { stdin: stdin?.[1] ?? null, stdout: stdoutRead, stderr: stderrRead },
    };
  } finally {
    for (const fd of [...theirs, ...ours]) closeSync(fd);
  }
}

/** The addon's error, in the terms of the request. */
function describe(error: unknown, launch: Launch): unknown {
  if (!isSystemError(error)) return error;
  const step = 'step' in error ? error.step : '';
  const reason = error.message.replace(/, spawn .*$/s, '');
  if (step === 'chdir') {
    const kind = error.code === 'EACCES' ? 'permission_denied' : 'invalid_argument';
    return new EnvdError(kind, describeDirectory(error.code, reason, launch), { cause: error });
  }
  if (step === 'execve') {
    const kind = error.code === 'ENOENT' ? 'not_found' : 'invalid_argument';
    return new EnvdError(kind, `cannot start '${launch.file}': ${reason}`, { cause: error });
  }
  if (step === 'frozen')
    return new EnvdError('unavailable', 'cannot start a process: the workload is frozen', { cause: error });
  const kind = ['EAGAIN', 'ENOMEM', 'EMFILE'].includes(error.code) ? 'resource_exhausted' : 'internal';
  return new EnvdError(kind, `cannot start '${launch.file}': ${step}: ${reason}`, { cause: error });
}

function describeDirectory(code: string, reason: string, { cwd, user }: Launch): string {
  if (code === 'ENOENT') return `cwd '${cwd}' does not exist`;
  if (code === 'ENOTDIR') return `cwd '${cwd}' is not a directory`;
  return `cannot enter cwd '${cwd}' as user '${user.name}': ${reason}`;
}
