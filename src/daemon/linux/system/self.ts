import { writeFileSync } from 'node:fs';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { native } from './native.ts';

/**
 * Whether this program is the bundle of an image, which was read as a whole at its start. Sources are read as they are
 * imported.
 */
export const isBundle = !import.meta.url.endsWith('.ts');

const beside = (name: string) => fileURLToPath(new URL(name, import.meta.url));

/**
 * The command that runs the Node of this program; its flags and a script follow. In an image, the dynamic loader beside Node starts
 * it, and `process.execPath` is that loader (docs/decisions/033-own-libraries.md).
 */
export const NODE: readonly [file: string, ...args: string[]] = isBundle
  ? [beside('ld.so'), '--inhibit-cache', '--library-path', beside('.'), beside('envd')]
  : [process.execPath];

/**
 * Makes the kernel place later mappings densely, so that the heap can be collapsed into huge pages
 * (docs/decisions/014-memory.md). This takes no memory. Call it once, before anything else.
 */
export function reserveAddressSpace(): void {
  native.reserveAddressSpace();
}

/**
 * Disables core dumps of this process, which would contain the access token. Child processes get the limit that the daemon
 * was started with (docs/decisions/003-beside-the-workload.md). Throws EPERM where the limit cannot be set.
 */
export function forbidCoreDumps(): void {
  native.forbidCoreDumps();
}

/**
 * Makes the exit of this process wait for no thread of the pool. Node waits for all of them, and one that waits for a file
 * server may never return. It also removes the handlers of signals before that, so that a signal would end the process with
 * another exit status. Call it after the listeners of `exit` that must run were added.
 */
export function exitWithoutThreads(): void {
  process.on('exit', (code) => native.exitNow(code));
}

/** The value that exempts a process from the out-of-memory killer. Source: proc_pid_oom_score_adj(5). */
const OOM_SCORE_ADJ_MIN = '-1000';

/** Exempts this process from the out-of-memory killer. Throws EACCES without CAP_SYS_RESOURCE. */
export function protectFromOomKiller(): void {
  writeFileSync('/proc/self/oom_score_adj', OOM_SCORE_ADJ_MIN);
}

/**
 * Collects all garbage now. `last-resort` also returns the free pages of the heap to the kernel, and drops compiled code and
 * caches; `regular` keeps what was used lately. It needs the flag `--expose-gc`, which `npm start` and the image give to
 * Node, and does nothing without it.
 */
export function collectGarbage(flavor: 'regular' | 'last-resort'): void {
  globalThis.gc?.({ type: 'major', execution: 'sync', flavor });
}
