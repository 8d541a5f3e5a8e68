import { printable } from '../../../output/printable.ts';
import { useValue } from '../state/observable.ts';
import type { Workspace } from '../workspace/workspace.ts';

const NAMES = {
  ...{ start: 'start', end: 'end', freeze: 'freeze', limit: 'limit', port: 'port', daemon: 'daemon' },
} as const;

export function EventsView({ workspace }: { readonly workspace: Workspace }) {
  const events = useValue(workspace.monitor.events);
  const { ports } = useValue(workspace.monitor.state);
  const open = ports?.ports ?? [];
  return (
    <div class="view scrolls" tabIndex={0} role="region" aria-label="Events">
      <h2>Ports</h2>
      {open.length === 0 && <p class="muted">Nothing that listens is known.</p>}
      <ul class="ports">
        {open.map(({ port }) => (
          <li key={port}>
            <PortLink port={port} workspace={workspace} />
          </li>
        ))}
      </ul>
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

/** A link to a port of the guest, where its address can be told. */
function PortLink({ port, workspace }: { readonly port: number; readonly workspace: Workspace }) {
  const url = workspace.urlOfPort(port);
  if (url === null) return <span>{port}</span>;
  return (
    <a href={url} target="_blank" rel="noopener noreferrer">
      {url}
    </a>
  );
}
