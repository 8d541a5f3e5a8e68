/** A process with its parent; null: the parent is not known. */
interface Child {
  readonly pid: number;
  readonly parent: number | null;
}

/** A process with the number of those above it. */
interface Placed<Process> {
  readonly process: Process;
  readonly depth: number;
}

/**
 * Orders processes as a tree: each comes before those that it has started, siblings by pid. Processes whose parent is not among them
 * are at the top, and so are those whose parents form a circle, which only a daemon that lies can tell.
 */
export function treeOf<Process extends Child>(processes: readonly Process[]): Placed<Process>[] {
  const sorted = [...processes].sort((one, other) => one.pid - other.pid);
  const pids = new Set(sorted.map(({ pid }) => pid));
  const children = Map.groupBy(sorted, ({ parent }) => (parent !== null && pids.has(parent) ? parent : null));
  const placed: Placed<Process>[] = [];
  const seen = new Set<Process>();
  const place = (roots: readonly Process[]) => {
    const waiting = roots.map((process) => ({ process, depth: 0 })).reverse();
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      if (seen.has(next.process)) continue;
      seen.add(next.process);
      placed.push(next);
      const { depth } = next;
      const below = children.get(next.process.pid) ?? [];
      waiting.push(...below.map((process) => ({ process, depth: depth + 1 })).reverse());
    }
  };
  place(children.get(null) ?? []);
  for (const process of sorted) place([process]);
  return placed;
}
