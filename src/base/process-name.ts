import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';

const THREADS = '/proc/self/task';

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
