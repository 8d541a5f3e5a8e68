/** A process with the pid of its parent, if that is known. */
interface Child {
  readonly pid: number;
  readonly parent?: number | undefined;
}

/** A process with the number of those above it. */
interface Placed<Process> {
  readonly process: Process;
  readonly depth: number;
}

/**
 * Orders processes as a tree: each comes before those that it has started, siblings by pid. Processes whose parent is not among them
 * are at the top. So are those whose parents form a circle, and a pid is shown once, because what a daemon says may be no tree.
 */
export function orderAsTree<Process extends Child>(processes: readonly Process[]): Placed<Process>[] {
  const sorted = [...processes].sort((one, other) => one.pid - other.pid);
  const pids = new Set(sorted.map(({ pid }) => pid));
  const children = Map.groupBy(sorted, ({ parent = 0 }) => (pids.has(parent) ? parent : 0));
  const placed: Placed<Process>[] = [];
  const seen = new Set<number>();
  const place = (roots: readonly Process[]) => {
    // A chain of processes may be deeper than the stack of calls.
    const waiting = roots.map((process) => ({ process, depth: 0 })).reverse();
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const { process, depth } = next;
      if (seen.has(process.pid)) continue;
      seen.add(process.pid);
      placed.push(next);
      for (const child of (children.get(process.pid) ?? []).toReversed())
        waiting.push({ process: child, depth: depth + 1 });
    }
  };
  place(children.get(0) ?? []);
  for (const process of sorted) place([process]);
  return placed;
}
