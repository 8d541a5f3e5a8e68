import { type ChildProcess, spawn } from 'node:child_process';
import { within } from '../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../base/errors.ts';

/** The most characters of output that are kept. */
const MAX_OUTPUT = 1000;
/** How long the output is waited for after the exit, in milliseconds. Helpers that go on may hold the pipe open. */
const OUTPUT_GRACE_MS = 100;

const ENVIRONMENT = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' };

/**
 * Runs a program of the guest with the daemon's privileges. It is killed with its process group after `limitMs`. Throws
 * `failed_precondition` when it is not installed, `deadline_exceeded` when it was killed, and `unavailable` with its stderr
 * when it fails.
 */
export async function runTool(file: string, args: readonly string[], limitMs: number): Promise<void> {
  const tool = spawn(file, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    cwd: '/',
    env: ENVIRONMENT,
    // This gives the tool a process group of its own, so that helpers can be killed with it.
    detached: true,
  });
  let output = '';
  tool.stderr.setEncoding('utf8').on('data', (text: string) => {
    output = (output + text).slice(0, MAX_OUTPUT);
  });
  try {
    const status = await endOf(tool, limitMs);
    if (status === null) {
      throw new EnvdError(
        'deadline_exceeded',
        `'${file}' did not finish within ${limitMs / 1000} s and was killed`,
      );
    }
    if (status !== '0') throw new EnvdError('unavailable', `'${file}' failed (${status}): ${output.trim()}`);
  } finally {
    tool.stderr.destroy();
  }
}

/** Resolves with the exit code or the signal; null when the tool was killed at the deadline. */
async function endOf(tool: ChildProcess, limitMs: number): Promise<string | null> {
  const { promise: ended, resolve, reject } = Promise.withResolvers<string>();
  const closed = new Promise((done) => tool.once('close', done));
  tool.once('error', (error) => reject(describe(error, tool.spawnfile)));
  tool.once('exit', (code, signal) => resolve(signal ?? String(code)));
  const status = await within<string | null>(limitMs, ended, () => null);
  if (status === null) killGroup(tool);
  else await within<unknown>(OUTPUT_GRACE_MS, closed, () => {});
  return status;
}

/**
 * Kills a process group. Does not wait for the exit, because a process that is blocked in the kernel may take long to die.
 */
function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid) process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if (!isSystemError(error, 'ESRCH')) throw error;
  }
}

function describe(error: Error, file: string): Error {
  if (!isSystemError(error, 'ENOENT')) return error;
  return new EnvdError('failed_precondition', `'${file}' is not installed`, { cause: error });
}
