import { formatBytes, formatSeconds } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import { byText, type DataColumn, DataTable, sortedRows } from '../parts/data-table.tsx';
import { FilterField } from '../parts/filter-field.tsx';
import { ageOf } from '../state/guest-snapshot.ts';
import { useValue } from '../state/observable.ts';
import type { SandboxList } from '../state/sandbox-list.ts';
import type { SandboxMessage } from '../wire/messages.ts';
import { createSandbox, type ListPlace, type SandboxParts } from '../workspace/sandbox-operations.ts';
import { SandboxActions } from './sandbox-actions.tsx';
import { useClock } from './sandbox-bar.tsx';

interface SandboxesProps {
  readonly parts: SandboxParts;
  onOpen(id: string): void;
}

const columnsOf = (list: SandboxList): readonly DataColumn<SandboxMessage>[] => [
  {
    ...{ title: 'Sandbox', width: 'minmax(8rem, 1fr)' },
    cell: ({ sandboxID }) => printable(sandboxID),
    compare: (one, other) => byText(one.sandboxID, other.sandboxID),
  },
  { title: 'State', width: '6rem', cell: ({ phase, state }) => printable(phase ?? state ?? '') },
  {
    ...{ title: 'Time left', width: '6rem', isNumber: true },
    cell: (sandbox) => timeLeft(list, sandbox),
    compare: (one, other) => byText(one.endAt, other.endAt),
  },
  {
    ...{ title: 'Template', width: '9rem', isWide: true },
    cell: (sandbox) => printable(templateOf(sandbox)) || '-',
    compare: (one, other) => byText(templateOf(one), templateOf(other)),
  },
  { title: 'Machine', width: '9rem', isWide: true, cell: machineOf },
  {
    ...{ title: 'Metadata', width: 'minmax(8rem, 1fr)', isWide: true },
    cell: (sandbox) => <span title={metadataOf(sandbox)}>{metadataOf(sandbox)}</span>,
  },
  {
    ...{ title: 'Started', width: '9rem', isWide: true },
    cell: ({ startedAt }) => `${ageOf(startedAt)} ago`,
    compare: (one, other) => byText(one.startedAt, other.startedAt),
  },
  {
    ...{ title: 'Address', width: '12rem', isWide: true },
    cell: ({ address, port }) => printable(`${address ?? '-'}:${port ?? '-'}`),
  },
];

function templateOf({ alias, templateID = '' }: SandboxMessage): string {
  return alias ?? templateID;
}

function machineOf({ cpuCount = 0, memoryMB = 0 }: SandboxMessage): string {
  const parts = [cpuCount > 0 && `${cpuCount} CPU`, memoryMB > 0 && formatBytes(memoryMB * 1024 ** 2)];
  return parts.filter(Boolean).join(', ') || '-';
}

function metadataOf({ metadata }: SandboxMessage): string {
  return printable(
    Object.entries(metadata ?? {})
      .map(([name, value]) => `${name}=${value}`)
      .join(' '),
  );
}

/** Whether a sandbox has each word of a text in its name, state, template or metadata. */
function isFound(sandbox: SandboxMessage, text: string): boolean {
  const { sandboxID, phase = '' } = sandbox;
  const all = `${sandboxID} ${phase} ${templateOf(sandbox)} ${metadataOf(sandbox)}`.toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

function timeLeft(list: SandboxList, sandbox: SandboxMessage): string {
  const left = sandbox.state === 'paused' ? null : list.leftMs(sandbox);
  return left === null ? '-' : formatSeconds(left / 1000);
}

export function SandboxesView(props: SandboxesProps) {
  const { onOpen } = props;
  const { list, listPlace } = props.parts;
  const goTo = (place: Partial<ListPlace>) => listPlace.update((before) => ({ ...before, ...place }));
  const { sandboxes, problem, isKnown } = useValue(list.state);
  const { selected, filter, sort } = useValue(listPlace);
  useClock();
  const columns = columnsOf(list);
  const found = sandboxes.filter((sandbox) => isFound(sandbox, filter));
  const chosen = sandboxes.filter(({ sandboxID }) => selected.includes(sandboxID));
  const create = async () => {
    const id = await createSandbox(props.parts);
    // It is seen, whatever the list was reduced to.
    if (id !== null) goTo({ selected: [id], filter: '' });
  };
  return (
    <div class="view">
      <div class="bar">
        <button type="button" onClick={() => void create()}>
          Create
        </button>
        <SandboxTools {...props} chosen={chosen} />
        <span class="grow" />
        <FilterField what="sandboxes" value={filter} onFilter={(text) => goTo({ filter: text })} />
      </div>
      {problem !== null && <p class="problem wrap">{problem}</p>}
      {isKnown && sandboxes.length === 0 && <p class="empty">The gateway has no sandbox for this key.</p>}
      <DataTable
        {...{ label: 'Sandboxes', columns, rows: sortedRows(found, columns, sort), selected, sort }}
        hasSeveral
        menu={<SandboxTools {...props} chosen={chosen} />}
        onSelect={(ids) => goTo({ selected: ids })}
        onSort={(wanted) => goTo({ sort: wanted })}
        keyOf={({ sandboxID }) => sandboxID}
        onOpen={({ sandboxID }) => onOpen(sandboxID)}
      />
    </div>
  );
}

/** What can be done with the sandboxes that are chosen. */
function SandboxTools({
  parts,
  chosen,
  onOpen,
}: SandboxesProps & { readonly chosen: readonly SandboxMessage[] }) {
  const only = chosen.length === 1 ? chosen[0] : undefined;
  return (
    <>
      <button type="button" class="primary" disabled={!only} onClick={() => only && onOpen(only.sandboxID)}>
        Open
      </button>
      <SandboxActions parts={parts} sandboxes={chosen} />
    </>
  );
}
