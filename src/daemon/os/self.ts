// What the daemon sets and does for its own process.
import { writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { native } from './native.ts';

/**
 * Makes the kernel pack whatever is mapped from now on, so that the heap can be collapsed into huge pages
 * (docs/decisions/003-address-space-reservation.md). Costs no memory; to be called once, first of all.
 */
export function reserveAddressSpace(): void {
  native.reserveAddressSpace();
}

/**
 * Keeps this process' memory, and the access token in it, out of core dumps; processes that it starts have the limit
 * that it was started with (docs/decisions/012-core-dumps.md). Throws EPERM where the limit cannot be set.
 */
export function forbidCoreDumps(): void {
  native.forbidCoreDumps();
}

/** Never chosen by the kernel's out-of-memory killer. Source: proc_pid_oom_score_adj(5). */
const NEVER = '-1000';

/** Makes this process the last to be killed when memory runs out; throws EACCES without CAP_SYS_RESOURCE. */
export function protectFromOomKiller(): void {
  writeFileSync('/proc/self/oom_score_adj', NEVER);
}

type CollectGarbage = (options: { type: 'major'; execution: 'sync'; flavor: 'last-resort' }) => void;

/**
 * Returns what collects all garbage and gives the emptied heap pages back to the kernel. An ordinary full collection
 * keeps those for later: after a load it left 70 MB of anonymous memory where this one left 10, in 17 ms. V8 gives `gc`
 * to contexts that are made while the flag is set: the daemon's own globals stay as they were.
 */
export function exposeCollector(): () => void {
  setFlagsFromString('--expose-gc');
  try {
    const collect = runInNewContext('gc') as CollectGarbage;
    return () => collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  } finally {
    setFlagsFromString('--no-expose-gc');
  }
}
