import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import process from 'node:process';
import { EnvdError, messageOf } from './errors.ts';

const THREADS = '/proc/self/task';

/**
 * Runs a program under a name of its own. What it throws ends it with a sentence: exit code 2 for a value that was
 * understood and cannot be used, like an address that is not this machine's, otherwise 1.
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
 * Names the process and its threads, of which the kernel keeps 15 bytes. Node calls its main thread 'node-MainThread'
 * when it starts, whatever the program's file is called, and `pkill node` ends what is called so
 * (docs/decisions/024-own-name.md).
 */
export function nameProcess(name: string): void {
  // Where an image is built it may be missing.
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
