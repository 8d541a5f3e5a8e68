import { useEffect, useState } from 'preact/hooks';
import { formatSeconds } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import { type DataColumn, DataTable } from '../parts/data-table.tsx';
import type { Notices } from '../parts/notices.tsx';
import type { Questions } from '../parts/questions.tsx';
import { ageOf } from '../state/guest-snapshot.ts';
import { useValue } from '../state/observable.ts';
import type { SandboxList } from '../state/sandbox-list.ts';
import type { SandboxMessage } from '../wire/messages.ts';

interface SandboxesProps {
  readonly list: SandboxList;
  readonly questions: Questions;
  readonly notices: Notices;
  onOpen(id: string): void;
}

const COLUMNS: readonly DataColumn<SandboxMessage>[] = [
  { title: 'Sandbox', width: 'minmax(8rem, 1fr)', cell: ({ sandboxID }) => printable(sandboxID) },
  { title: 'State', width: '6rem', cell: ({ phase, state }) => printable(phase ?? state ?? '') },
  { title: 'Time left', width: '6rem', isNumber: true, cell: timeLeft },
  { title: 'Started', width: '10rem', isWide: true, cell: ({ startedAt }) => `${ageOf(startedAt)} ago` },
  {
    title: 'Address',
    width: '12rem',
    isWide: true,
    cell: ({ address, port }) => printable(`${address ?? '-'}:${port ?? '-'}`),
  },
];

function timeLeft({ endAt, state }: SandboxMessage): string {
  const end = Date.parse(endAt ?? '');
  return Number.isNaN(end) || state === 'paused'
    ? '-'
    : formatSeconds(Math.max(0, (end - Date.now()) / 1000));
}

export function SandboxesView(props: SandboxesProps) {
  const { list, onOpen } = props;
  const { sandboxes, problem, isKnown } = useValue(list.state);
  const [selected, setSelected] = useState<string | null>(null);
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const chosen = sandboxes.find(({ sandboxID }) => sandboxID === selected);
  return (
    <div class="view">
      <SandboxTools {...props} chosen={chosen} />
      {problem !== null && <p class="problem wrap">{problem}</p>}
      {isKnown && sandboxes.length === 0 && <p class="empty">The gateway has no sandbox for this key.</p>}
      <DataTable
        {...{ label: 'Sandboxes', columns: COLUMNS, rows: sandboxes, selected, onSelect: setSelected }}
        keyOf={({ sandboxID }) => sandboxID}
        onOpen={({ sandboxID }) => onOpen(sandboxID)}
      />
    </div>
  );
}

function SandboxTools({
  list,
  questions,
  notices,
  onOpen,
  chosen,
}: SandboxesProps & { chosen: SandboxMessage | undefined }) {
  const id = chosen?.sandboxID ?? '';
  const change = (operation: string | null, body?: object) =>
    void notices.attempt(() => list.change(id, operation, body));
  const kill = async () => {
    const text = `${printable(id)} is ended, with its machine and everything in it.`;
    if (await questions.confirm('Kill the sandbox?', text, 'Kill it')) change(null);
  };
  const isPaused = chosen?.state === 'paused';
  return (
    <div class="bar">
      <button type="button" class="primary" disabled={!chosen} onClick={() => onOpen(id)}>
        Open
      </button>
      <button type="button" disabled={!chosen} onClick={() => change('refreshes', { duration: 600 })}>
        Extend to 10 min
      </button>
      <button type="button" disabled={!chosen} onClick={() => change('refreshes', { duration: 3600 })}>
        Extend to 1 h
      </button>
      <button type="button" disabled={!chosen || isPaused} onClick={() => change('pause')}>
        Pause
      </button>
      <button type="button" disabled={!isPaused} onClick={() => change('resume', {})}>
        Resume
      </button>
      <button type="button" class="danger" disabled={!chosen} onClick={() => void kill()}>
        Kill
      </button>
    </div>
  );
}
