import { printable } from '../../../output/printable.ts';
import { useValue } from '../state/observable.ts';
import type { Workspace } from '../workspace/workspace.ts';

interface ListedPort {
  readonly port: number;
  /** Where it listens, and who does. */
  readonly text: string;
}

/** What listens in the guest, with the address where a browser reaches it. */
export function PortsList({ workspace }: { readonly workspace: Workspace }) {
  const listed = usePorts(workspace);
  if (listed.length === 0) return <p class="muted">Nothing that listens is known.</p>;
  return (
    <ul class="ports">
      {listed.map(({ port, text }) => (
        <li key={port + text}>
          <strong>{port}</strong>
          <span class="wrap">{printable(text)}</span>
          <span class="grow" />
          <PortAddress {...{ port, workspace }} />
        </li>
      ))}
    </ul>
  );
}

/** Every listener; of a daemon that does not tell them, the ports that it forwards. */
function usePorts({ monitor }: Workspace): readonly ListedPort[] {
  const listeners = useValue(monitor.listeners.all);
  const { ports } = useValue(monitor.state);
  if (listeners === null)
    return (ports?.ports ?? []).map(({ port, target = '' }) => ({ port, text: target }));
  return [...listeners.values()]
    .sort((one, other) => one.port - other.port)
    .map(({ port, address, command, pid, user }) => ({
      port,
      text: [
        address === '*' ? 'all addresses' : address,
        command ?? 'an unknown process',
        pid === null ? '' : String(pid),
        user ?? '',
      ]
        .filter(Boolean)
        .join(' · '),
    }));
}

function PortAddress({ port, workspace }: { readonly port: number; readonly workspace: Workspace }) {
  const { notices } = workspace;
  const url = workspace.urlOfPort(port);
  const text = url ?? `envctl forward ${port}`;
  const copy = () =>
    notices.attempt(async () => {
      await navigator.clipboard.writeText(await workspace.linkTo(port));
      notices.say(`${workspace.isPrivate ? 'A link that opens it for an hour' : `'${text}'`} is copied.`);
    });
  return (
    <>
      {url === null ? <code>{text}</code> : <PortLink port={port} workspace={workspace} />}
      <button type="button" aria-label={`Copy ${text}`} onClick={() => void copy()}>
        Copy
      </button>
    </>
  );
}

function openPreview(workspace: Workspace, port: number): Promise<boolean> {
  return workspace.notices.attempt(async () => {
    const url = await workspace.linkTo(port);
    if (/^https?:/.test(url)) window.open(url, '_blank', 'noopener,noreferrer');
  });
}

/** A link to a port of the guest, where its address can be told. */
export function PortLink({ port, workspace }: { readonly port: number; readonly workspace: Workspace }) {
  const url = workspace.urlOfPort(port);
  if (url === null) return <span>{port}</span>;
  if (workspace.isPrivate)
    return (
      <button type="button" title={url} onClick={() => void openPreview(workspace, port)}>
        Open by a preview link
      </button>
    );
  return (
    <a href={url} target="_blank" rel="noopener noreferrer">
      {url}
    </a>
  );
}
