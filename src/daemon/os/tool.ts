import { type ChildProcess, spawn } from 'node:child_process';
import { within } from '../../base/abort.ts';
import { EnvdError, isSystemError } from '../../base/errors.ts';

/** Of what a tool prints, the first characters are kept. */
const MAX_OUTPUT = 1000;
/** What a tool has printed is waited for so long after its end: helpers that stay may hold the pipe, ms. */
const OUTPUT_GRACE_MS = 100;

const ENVIRONMENT = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' };

/**
 * Runs a program of the guest's own system as the daemon itself. After `limitMs` it is killed with the helpers that it
 * has started. Throws `failed_precondition` when it is not installed, `deadline_exceeded` when it was killed,
 * `unavailable` with what it has printed when it fails.
 */
export async function runTool(file: string, args: readonly string[], limitMs: number): Promise<void> {
  const tool = spawn(file, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    cwd: '/',
    env: ENVIRONMENT,
    // A group of its own: a helper is not killed with the program that waits for it.
    detached: true,
  });
  let output = '';
  tool.stderr.setEncoding('utf8').on('data', (text: string) => {
    output = (output + text).slice(0, MAX_OUTPUT);
  });
  try {
    const status = await endOf(tool, limitMs);
    if (status === null) {
      throw new EnvdError('deadline_exceeded', `'${file}' was killed after ${limitMs / 1000} s`);
    }
    if (status !== '0') throw new EnvdError('unavailable', `'${file}' failed (${status}): ${output.trim()}`);
  } finally {
    tool.stderr.destroy();
  }
}

/** Exit code or signal; null when the tool was killed because its time was up. */
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

/** Not waited for: one that hangs in the kernel may take its time to die. */
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
