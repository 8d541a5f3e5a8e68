import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import process from 'node:process';
import { EnvdError, messageOf } from '../errors.ts';

const THREADS = '/proc/self/task';

/**
 * Names the process and runs the program. Prints an error, and then sets the exit code: 2 for an unusable setting, such as the
 * address of another machine, and 1 otherwise.
 */
export async function runAs(name: string, run: () => Promise<void>): Promise<void> {
  try {
    nameProcess(name);
    await run();
  } catch (error) {
    process.stderr.write(`${name}: ${messageOf(error)}\n`);
    process.exitCode = isBadUsage(error) ? 2 : 1;
  }
}

function isBadUsage(error: unknown): boolean {
  return error instanceof EnvdError && ['invalid_argument', 'failed_precondition'].includes(error.kind);
}

/**
 * Names the process and its threads; the kernel keeps 15 bytes of a name. Node names its main thread 'node-MainThread', so that
 * a user's `pkill node` would end the program (docs/decisions/003-beside-the-workload.md).
 */
export function nameProcess(name: string): void {
  // /proc may be missing while an image is built.
  if (!existsSync(THREADS)) return;
  for (const thread of readdirSync(THREADS)) nameThread(`${THREADS}/${thread}/comm`, name);
}

function nameThread(path: string, name: string): void {
  try {
    if (readFileSync(path, 'utf8').startsWith('node')) writeFileSync(path, name);
  } catch {
    // The thread has ended.
  }
}
