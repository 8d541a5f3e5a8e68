import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

type CollectGarbage = (options: { type: 'major'; execution: 'sync'; flavor: 'last-resort' }) => void;

let collect: CollectGarbage | null = null;

/**
 * Collects all garbage and gives the emptied heap pages back to the kernel. An ordinary full collection keeps
 * those for later: after a load it left 70 MB of anonymous memory where this one left 10, in 17 ms.
 */
export function collectGarbage(): void {
  collect ??= exposeCollector();
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

/** V8 gives `gc` to contexts that are made while the flag is set: the daemon's own globals stay as they were. */
function exposeCollector(): CollectGarbage {
  setFlagsFromString('--expose-gc');
  try {
    return runInNewContext('gc') as CollectGarbage;
  } finally {
    setFlagsFromString('--no-expose-gc');
  }
}
