import { orderAsTree } from '../../../output/tree.ts';
import { commandOf } from '../state/guest-snapshot.ts';
import type { ProcessMessage } from '../wire/messages.ts';

/** A process in the order of the tree. */
export interface TreeRow {
  readonly process: ProcessMessage;
  readonly depth: number;
  /** Whether a client has started it, so that the daemon can signal it and knows its output. */
  readonly isOfClient: boolean;
  /** Whether those below it are shown; null: there are none, or they are not told. */
  readonly isOpen: boolean | null;
  /** Of one CPU; null: not known yet. */
  readonly cpuPercent: number | null;
}

/** The processes as a tree, children below their parents, by pid; those that match `filter` alone, without a tree. */
export function treeOf(
  processes: readonly ProcessMessage[],
  known: ReadonlySet<number>,
  cpu: ReadonlyMap<number, number>,
  filter: string,
): TreeRow[] {
  const rowOf = (process: ProcessMessage, depth: number): TreeRow => ({
    ...{ process, depth, isOfClient: known.has(process.pid), isOpen: null },
    cpuPercent: cpu.get(process.pid) ?? null,
  });
  if (filter !== '') {
    const wanted = filter.toLowerCase();
    const matches = (process: ProcessMessage) =>
      `${process.pid} ${process.tag ?? ''} ${process.user ?? ''} ${commandOf(process)}`
        .toLowerCase()
        .includes(wanted);
    return processes.filter(matches).map((process) => rowOf(process, 0));
  }
  return orderAsTree(processes).map(({ process, depth }) => rowOf(process, depth));
}

/** The rows of a tree without those below what is closed. */
export function openRows(tree: readonly TreeRow[], closed: ReadonlySet<number>): TreeRow[] {
  const rows: TreeRow[] = [];
  let closedDepth = Number.POSITIVE_INFINITY;
  for (const [index, row] of tree.entries()) {
    if (row.depth > closedDepth) continue;
    const hasBelow = (tree[index + 1]?.depth ?? 0) > row.depth;
    const isOpen = hasBelow ? !closed.has(row.process.pid) : null;
    closedDepth = isOpen === false ? row.depth : Number.POSITIVE_INFINITY;
    rows.push({ ...row, isOpen });
  }
  return rows;
}

/** The row in a list that is no tree. */
export function withoutTree(row: TreeRow): TreeRow {
  return { ...row, depth: 0 };
}

/** Computes the share of a CPU from two sums of CPU time. */
export class CpuShares {
  #before = new Map<number, { readonly micros: number; readonly at: number }>();

  /** The share of each process since the call before, in percent. */
  read(processes: readonly ProcessMessage[]): ReadonlyMap<number, number> {
    const at = performance.now();
    const shares = new Map<number, number>();
    const now = new Map<number, { readonly micros: number; readonly at: number }>();
    for (const { pid, usage } of processes) {
      if (!usage) continue;
      const micros = Number(usage.userMicros ?? 0) + Number(usage.systemMicros ?? 0);
      const before = this.#before.get(pid);
      if (before && micros >= before.micros)
        shares.set(pid, Math.max(0, (micros - before.micros) / ((at - before.at) * 10)));
      now.set(pid, { micros, at });
    }
    this.#before = now;
    return shares;
  }
}
