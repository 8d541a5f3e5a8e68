import { execFileSync } from 'node:child_process';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 5;

/** Runs a program; returns what it has printed. Throws with its complaints when it fails, or when it is not installed. */
export function run(program: string, args: readonly string[], input?: string): string {
  const stdin = input === undefined ? 'ignore' : 'pipe';
  try {
    return execFileSync(program, args, {
      encoding: 'utf8',
      stdio: [stdin, 'pipe', 'pipe'],
      ...(input !== undefined && { input }),
    });
  } catch (error) {
    const { code, stderr } = error as { readonly code?: string; readonly stderr?: string };
    if (code === 'ENOENT') throw new Error(`'${program}' is not installed`, { cause: error });
    throw new Error(`'${program}' failed: ${stderr?.trim() || messageOf(error)}`, { cause: error });
  }
}

/** What to tell of an error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The end of a file, which may be of any size. */
export function tail(path: string, bytes: number): string {
  const file = openSync(path, 'r');
  try {
    const buffer = Buffer.alloc(bytes);
    const read = readSync(file, buffer, 0, bytes, Math.max(0, fstatSync(file).size - bytes));
    return buffer.toString('utf8', 0, read).trim();
  } finally {
    closeSync(file);
  }
}

/** Removes a directory with everything in it. Trees of sandboxes may be deeper than a path can be long. */
export function removeTree(path: string): void {
  run('rm', ['--recursive', '--force', '--one-file-system', path]);
}

/** Whether the daemon at an address answers; waits a moment if it does not. */
export async function isAnswering(address: string): Promise<boolean> {
  try {
    const { ok } = await fetch(`http://${address}:49983/health`, { signal: AbortSignal.timeout(1000) });
    return ok;
  } catch {
    await delay(POLL_MS);
    return false;
  }
}

/** Polls until `isDone`. Throws after `limitMs`. */
export async function until(what: string, limitMs: number, isDone: () => boolean): Promise<void> {
  const end = performance.now() + limitMs;
  while (!isDone()) {
    if (performance.now() > end) throw new Error(`${what}: not within ${limitMs / 1000} s`);
    await delay(POLL_MS);
  }
}
