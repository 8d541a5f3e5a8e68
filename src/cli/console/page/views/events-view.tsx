import { printable } from '../../../output/printable.ts';
import { useValue } from '../state/observable.ts';
import type { Workspace } from '../workspace/workspace.ts';
import { PortLink, PortsList } from './ports-list.tsx';

const NAMES = {
  ...{ start: 'start', end: 'end', freeze: 'freeze', limit: 'limit', port: 'port', daemon: 'daemon' },
} as const;

export function EventsView({ workspace }: { readonly workspace: Workspace }) {
  const events = useValue(workspace.monitor.events);
  return (
    <div class="view scrolls" tabIndex={0} role="region" aria-label="Events">
      <h2>Ports</h2>
      <PortsList workspace={workspace} />
      <h2>Events</h2>
      {events.length === 0 && <p class="muted">Nothing has happened since this page was opened.</p>}
      <ol class="events">
        {events.map(({ id, at, kind, text, port }) => (
          <li key={id} class={`event ${kind}`}>
            <time dateTime={at.toISOString()}>{at.toTimeString().slice(0, 8)}</time>
            <span class="kind">{NAMES[kind]}</span>
            <span class="wrap">
              {printable(text)} {port !== undefined && <PortLink port={port} workspace={workspace} />}
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
}
