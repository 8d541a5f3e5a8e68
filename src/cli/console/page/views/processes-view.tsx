import { useMemo, useState } from 'preact/hooks';
import { formatBytes } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import { byText, type DataColumn, DataTable, sortedRows } from '../parts/data-table.tsx';
import { FilterField } from '../parts/filter-field.tsx';
import { commandOf, durationOf } from '../state/guest-snapshot.ts';
import { useValue } from '../state/observable.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { useAllProcesses } from './all-processes.ts';
import { askForProcess, askForSignal } from './process-questions.ts';
import { openRows, type TreeRow, treeOf, withoutTree } from './process-tree.ts';

const columnsOf = (toggle: (pid: number) => void): readonly DataColumn<TreeRow>[] => [
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
    cell: ({ process, depth, isOfClient, isOpen }) => (
      <span style={{ paddingLeft: `min(${depth * 0.9}rem, 40%)` }} class={isOfClient ? 'own' : ''}>
        <span
          class="knob"
          title={isOpen === null ? undefined : 'Left and Right close and open it'}
          onClick={() => isOpen !== null && toggle(process.pid)}
        >
          {isOpen === null ? '' : isOpen ? '▾' : '▸'}
        </span>
        {printable(commandOf(process))}
      </span>
    ),
    compare: (one, other) => byText(commandOf(one.process), commandOf(other.process)),
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

export function ProcessesView({ workspace }: { readonly workspace: Workspace }) {
  const [filter, setFilter] = useState('');
  const [selected, setSelected] = useState<readonly string[]>([]);
  const { processes: own } = useValue(workspace.monitor.state);
  const { processes, cpu, problem } = useAllProcesses(workspace);
  const known = useMemo(() => new Set(own.map(({ pid }) => pid)), [own]);
  const sort = useValue(workspace.sortedProcesses);
  const [closed, setClosed] = useState<ReadonlySet<number>>(new Set());
  const toggle = (pid: number) => setClosed((pids) => pids.symmetricDifference(new Set([pid])));
  const columns = useMemo(() => columnsOf(toggle), []);
  const rows = useMemo(() => {
    const tree = treeOf(processes.length > 0 ? processes : own, known, cpu, filter);
    // In another order, what is below what is not to be seen.
    return sort === null ? openRows(tree, closed) : sortedRows(tree.map(withoutTree), columns, sort);
  }, [processes, own, cpu, filter, sort, closed]);
  const row = rows.find(({ process }) => String(process.pid) === selected[0]);
  return (
    <div class="view">
      <ProcessTools {...{ workspace, row, filter, setFilter }} />
      {problem && <p class="problem wrap">{problem}</p>}
      <DataTable
        {...{ label: 'Processes', columns, rows, selected, onSelect: setSelected, sort }}
        onSort={(wanted) => workspace.sortedProcesses.set(wanted)}
        keyOf={({ process }) => String(process.pid)}
        onOpen={({ process, isOfClient }) => isOfClient && workspace.showProcess(process)}
        menu={<ProcessActions {...{ workspace, row }} />}
        onKey={({ key }, each) => {
          if (key === 'Delete' && each?.isOfClient) void askForSignal(workspace, each.process);
          if (each && each.isOpen !== null && each.isOpen === (key === 'ArrowLeft') && /^Arrow/.test(key))
            toggle(each.process.pid);
        }}
      />
    </div>
  );
}

interface ProcessActionsProps {
  readonly workspace: Workspace;
  readonly row: TreeRow | undefined;
}

interface ProcessToolsProps extends ProcessActionsProps {
  readonly filter: string;
  setFilter(text: string): void;
}

function ProcessTools({ workspace, row, filter, setFilter }: ProcessToolsProps) {
  return (
    <div class="bar">
      <button type="button" class="primary" onClick={() => void askForProcess(workspace)}>
        Start a process
      </button>
      <ProcessActions {...{ workspace, row }} />
      <span class="muted">
        {row && !row.isOfClient ? 'Only what a client has started can be signaled.' : ''}
      </span>
      <span class="grow" />
      <FilterField what="processes" value={filter} onFilter={setFilter} />
    </div>
  );
}

/** What can be done with the process that is chosen. */
function ProcessActions({ workspace, row }: ProcessActionsProps) {
  const process = row?.isOfClient ? row.process : undefined;
  return (
    <>
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
    </>
  );
}
