import { useEffect, useMemo, useState } from 'preact/hooks';
import { formatBytes } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import { type DataColumn, DataTable, sortedRows } from '../parts/data-table.tsx';
import { commandOf, durationOf } from '../state/guest-snapshot.ts';
import { useValue } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { ListMessage, ProcessMessage } from '../wire/messages.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { askForProcess, askForSignal } from './process-questions.ts';
import { CpuShares, type TreeRow, treeOf } from './process-tree.ts';

const INTERVAL_MS = 2000;
/** Most answers that are put together: each has at most 512 processes. */
const MAX_ANSWERS = 20;

const COLUMNS: readonly DataColumn<TreeRow>[] = [
  {
    title: 'PID',
    width: '5rem',
    isNumber: true,
    cell: ({ process }) => process.pid,
    compare: (one, other) => one.process.pid - other.process.pid,
  },
  {
    title: 'Command',
    width: 'minmax(8rem, 1fr)',
    cell: ({ process, depth, isOfClient }) => (
      <span style={{ paddingLeft: `${Math.min(depth, 30) * 0.9}rem` }} class={isOfClient ? 'own' : ''}>
        {printable(commandOf(process))}
      </span>
    ),
    compare: (one, other) => inOrder(commandOf(one.process), commandOf(other.process)),
  },
  { title: 'Tag', width: '7rem', isWide: true, cell: ({ process }) => printable(process.tag ?? '') },
  { title: 'User', width: '6rem', isWide: true, cell: ({ process }) => printable(process.user ?? '') },
  {
    title: 'CPU',
    width: '4.5rem',
    isNumber: true,
    cell: ({ cpuPercent }) => (cpuPercent === null ? '' : `${cpuPercent.toFixed(1)} %`),
    compare: (one, other) => (one.cpuPercent ?? -1) - (other.cpuPercent ?? -1),
  },
  {
    title: 'Memory',
    width: '5.5rem',
    isNumber: true,
    cell: ({ process: { usage } }) =>
      usage?.memoryBytes === undefined ? '' : formatBytes(Number(usage.memoryBytes)),
    compare: (one, other) => memoryOf(one) - memoryOf(other),
  },
  {
    title: 'Age',
    width: '7.5rem',
    isNumber: true,
    isWide: true,
    cell: (row) => (ageIn(row) < 0 ? '' : durationOf(ageIn(row) / 1000)),
    compare: (one, other) => ageIn(one) - ageIn(other),
  },
  { title: 'State', width: '4.5rem', isWide: true, cell: ({ process }) => printable(process.state ?? '') },
];

function memoryOf({ process: { usage } }: TreeRow): number {
  return Number(usage?.memoryBytes ?? -1);
}

/** In milliseconds; -1: the daemon does not tell it. */
function ageIn({ process: { ageMillis } }: TreeRow): number {
  return Number(ageMillis ?? -1);
}

function inOrder(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}

export function ProcessesView({ workspace }: { readonly workspace: Workspace }) {
  const [filter, setFilter] = useState('');
  const [selected, setSelected] = useState<string | null>(null);
  const { processes: own } = useValue(workspace.monitor.state);
  const { processes, cpu, problem } = useAllProcesses(workspace);
  const known = useMemo(() => new Set(own.map(({ pid }) => pid)), [own]);
  const sort = useValue(workspace.sortedProcesses);
  const rows = useMemo(() => {
    const tree = treeOf(processes.length > 0 ? processes : own, known, cpu, filter);
    // In another order, what is below what is not to be seen.
    return sort === null ? tree : sortedRows(tree, COLUMNS, sort).map((row) => ({ ...row, depth: 0 }));
  }, [processes, own, cpu, filter, sort]);
  const row = rows.find(({ process }) => String(process.pid) === selected);
  return (
    <div class="view">
      <ProcessTools {...{ workspace, row, filter, setFilter }} />
      {problem && <p class="problem wrap">{problem}</p>}
      <DataTable
        {...{ label: 'Processes', columns: COLUMNS, rows, selected, onSelect: setSelected, sort }}
        onSort={(wanted) => workspace.sortedProcesses.set(wanted)}
        keyOf={({ process }) => String(process.pid)}
        onOpen={({ process, isOfClient }) => isOfClient && workspace.showProcess(process)}
        onKey={(event, each) =>
          event.key === 'Delete' && each?.isOfClient && void askForSignal(workspace, each.process)
        }
      />
    </div>
  );
}

interface ProcessToolsProps {
  readonly workspace: Workspace;
  readonly row: TreeRow | undefined;
  readonly filter: string;
  setFilter(text: string): void;
}

function ProcessTools({ workspace, row, filter, setFilter }: ProcessToolsProps) {
  const process = row?.isOfClient ? row.process : undefined;
  return (
    <div class="bar">
      <button type="button" class="primary" onClick={() => void askForProcess(workspace)}>
        Start a process
      </button>
      <button type="button" disabled={!process} onClick={() => process && workspace.showProcess(process)}>
        Output
      </button>
      <button
        type="button"
        disabled={!process}
        onClick={() => process && void askForSignal(workspace, process)}
      >
        Signal
      </button>
      <span class="muted">{row && !process ? 'Only what a client has started can be signaled.' : ''}</span>
      <span class="grow" />
      <input
        type="search"
        aria-label="Filter processes"
        placeholder="Filter"
        value={filter}
        onInput={(event) => setFilter(event.currentTarget.value)}
      />
    </div>
  );
}

interface AllProcesses {
  readonly processes: readonly ProcessMessage[];
  readonly cpu: ReadonlyMap<number, number>;
  readonly problem: string | null;
}

/** Every process of the guest, as of a moment ago. */
function useAllProcesses({ daemon, isPaused }: Workspace): AllProcesses {
  const [all, setAll] = useState<AllProcesses>({ processes: [], cpu: new Map(), problem: null });
  useEffect(() => {
    const shares = new CpuShares();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let hasLeft = false;
    const look = async () => {
      const found = isPaused()
        ? null
        : await listAll(daemon).catch((error: unknown) => callErrorOf(error).message);
      if (hasLeft) return;
      if (typeof found === 'string') setAll((before) => ({ ...before, problem: found }));
      else if (found) setAll({ processes: found, cpu: shares.read(found), problem: null });
      timer = setTimeout(() => void look(), INTERVAL_MS);
    };
    void look();
    return () => {
      hasLeft = true;
      clearTimeout(timer);
    };
  }, [daemon]);
  return all;
}

async function listAll(daemon: DaemonClient): Promise<ProcessMessage[]> {
  const all: ProcessMessage[] = [];
  for (let answers = 0; answers < MAX_ANSWERS; answers++) {
    const message = { scope: 'LIST_SCOPE_GUEST', usage: true, afterPid: all.at(-1)?.pid ?? 0 };
    const { processes = [], truncated } = await daemon.unary<ListMessage>('process.Process/List', message);
    all.push(...processes);
    if (!truncated || processes.length === 0) break;
  }
  return all;
}
