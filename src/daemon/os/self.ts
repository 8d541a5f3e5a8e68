// Settings of the daemon's own process.
import { writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { native } from './native.ts';

/** Whether this program is the bundle of an image, which was read whole at its start. Sources are read when they are imported. */
export const isBundle = !import.meta.url.endsWith('.ts');

/**
 * Makes the kernel place later mappings densely, so that the heap can be collapsed into huge pages
 * (docs/decisions/003-address-space-reservation.md). Uses no memory. To be called once, before anything else.
 */
export function reserveAddressSpace(): void {
  native.reserveAddressSpace();
}

/**
 * Disables core dumps of this process, which would contain the access token. Child processes get the limit that the
 * daemon was started with (docs/decisions/012-core-dumps.md). Throws EPERM where the limit cannot be set.
 */
export function forbidCoreDumps(): void {
  native.forbidCoreDumps();
}

/**
 * Makes the exit of this process wait for no thread of the pool, if `isHeldUp` by then: Node waits for all, and one that
 * waits for a file server may never return. Called after the listeners of `exit` that must run.
 */
export function exitWithoutThreads(isHeldUp: () => boolean): void {
  process.on('exit', (code) => {
    if (isHeldUp()) native.exitNow(code);
  });
}

/** Exempts a process from the out-of-memory killer. Source: proc_pid_oom_score_adj(5). */
const OOM_SCORE_ADJ_MIN = '-1000';

/** Exempts this process from the out-of-memory killer. Throws EACCES without CAP_SYS_RESOURCE. */
export function protectFromOomKiller(): void {
  writeFileSync('/proc/self/oom_score_adj', OOM_SCORE_ADJ_MIN);
}

/**
 * Whether V8 compiles code that is hot once more, optimised. Without it such code is some 1.5 times slower
 * (docs/decisions/062-first-calls-after-a-resume.md). The image starts without: systemd/image/prologue.cjs names the same
 * compilers.
 */
export function optimiseHotCode(wanted: boolean): void {
  for (const compiler of ['maglev', 'turbofan', 'sparkplug'])
    setFlagsFromString(`--${wanted ? '' : 'no-'}${compiler}`);
}

type CollectGarbage = (options: {
  type: 'major' | 'minor';
  execution: 'sync';
  flavor?: 'last-resort' | 'regular';
}) => void;

/** Collects all garbage now. */
export interface Collector {
  /**
   * Returns the free heap pages to the kernel, and drops compiled code and caches. An ordinary full collection keeps those
   * pages: after load it left 70 MB of anonymous memory, this one 10 MB, in 17 ms.
   */
  everything(): void;
  /** Keeps code and caches that have been used lately. */
  garbage(): void;
  /** Only what was allocated lately: keeps all hidden classes. */
  young(): void;
}

/** `gc` is taken from a context created while the flag is set, so that it does not become a global of the daemon. */
export function exposeCollector(): Collector {
  setFlagsFromString('--expose-gc');
  try {
    const collect = runInNewContext('gc') as CollectGarbage;
    const major = { type: 'major', execution: 'sync' } as const;
    return {
      everything: () => collect({ ...major, flavor: 'last-resort' }),
      garbage: () => collect({ ...major, flavor: 'regular' }),
      young: () => collect({ type: 'minor', execution: 'sync' }),
    };
  } finally {
    setFlagsFromString('--no-expose-gc');
  }
}
