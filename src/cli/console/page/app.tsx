import { useEffect } from 'preact/hooks';
import { printable } from '../../output/printable.ts';
import { Overlays, useOverlay } from './overlays.tsx';
import { NoticeList } from './parts/notices.tsx';
import { QuestionDialog } from './parts/questions.tsx';
import { THEMES } from './parts/theme.ts';
import { useValue } from './state/observable.ts';
import { TerminalsView } from './terminals/terminals-view.tsx';
import { EventsView } from './views/events-view.tsx';
import { FilesView } from './views/files-view.tsx';
import { GlanceView } from './views/glance-view.tsx';
import { ProcessesView } from './views/processes-view.tsx';
import { SandboxBar } from './views/sandbox-bar.tsx';
import { SandboxesView } from './views/sandboxes-view.tsx';
import { openWindow } from './workspace/commands.ts';
import type { Navigation } from './workspace/navigation.ts';
import { VIEWS, type ViewName } from './workspace/place.ts';
import type { PageParts, Workspace } from './workspace/workspace.ts';

interface ConsoleProps {
  readonly parts: PageParts;
  readonly navigation: Navigation;
}

export function ConsolePage({ parts, navigation }: ConsoleProps) {
  const current = useValue(navigation.current);
  useEffect(() => {
    current?.monitor.start();
    return () => current?.monitor.stop();
  }, [current]);
  const overlay = useOverlay();
  const leave = parts.client.about.hasGateway ? () => navigation.show(null) : null;
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the content
      </button>
      <Head {...{ parts, workspace: current, onLeave: leave }} onCommands={() => overlay.set('commands')} />
      {current ? (
        <SandboxPage key={current} workspace={current} />
      ) : (
        <main id="main" tabIndex={-1}>
          <SandboxesView parts={parts} onOpen={(id) => navigation.show(id)} />
        </main>
      )}
      <NoticeList notices={parts.notices} />
      <Overlays {...{ parts, navigation, shown: overlay }} />
      <QuestionDialog questions={parts.questions} />
    </>
  );
}

interface HeadProps {
  readonly parts: PageParts;
  readonly workspace: Workspace | null;
  /** Goes to the list of sandboxes; null: there is none. */
  readonly onLeave: (() => void) | null;
  onCommands(): void;
}

function Head({ parts, workspace, onLeave, onCommands }: HeadProps) {
  const { client } = parts;
  const theme = useValue(parts.theme);
  const turn = () => parts.theme.set(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? 'auto');
  return (
    <header>
      <h1 title={`envctl ${client.about.version}`}>{printable(workspace?.name ?? client.about.name)}</h1>
      {workspace && <Reach workspace={workspace} />}
      {workspace?.lease && onLeave && (
        <SandboxBar key={workspace} {...{ parts, lease: workspace.lease, onKilled: onLeave }} />
      )}
      <span class="grow" />
      {onLeave && workspace && (
        <button type="button" onClick={onLeave}>
          All sandboxes
        </button>
      )}
      <button type="button" title="Ctrl+K; ? lists the keys" onClick={onCommands}>
        Commands
      </button>
      <button type="button" onClick={() => void openWindow(parts)}>
        New window
      </button>
      <button type="button" onClick={turn}>
        Theme: {theme}
      </button>
    </header>
  );
}

/** Whether the daemon answers, and whether it is frozen. */
function Reach({ workspace }: { readonly workspace: Workspace }) {
  const { reach, health, message } = useValue(workspace.monitor.state);
  const isFrozen = health?.frozen?.workload || health?.frozen?.filesystem;
  const text = reach === 'reachable' && isFrozen ? 'frozen' : reach;
  return (
    <span class={`reach ${text}`} role="status" title={message}>
      {text}
    </span>
  );
}

function SandboxPage({ workspace }: { readonly workspace: Workspace }) {
  const view = useValue(workspace.view);
  const drafts = useValue(workspace.drafts.all);
  return (
    <>
      <nav aria-label="Views">
        {VIEWS.map((name, index) => (
          <button
            key={name}
            type="button"
            aria-current={name === view ? 'page' : undefined}
            class={name === 'Files' && drafts.size > 0 ? 'unsaved' : undefined}
            title={`Alt+Shift+${index + 1}`}
            onClick={() => workspace.view.set(name)}
          >
            {name}
          </button>
        ))}
      </nav>
      <main id="main" tabIndex={-1} aria-label={view}>
        <View view={view} workspace={workspace} />
      </main>
    </>
  );
}

function View({ view, workspace }: { readonly view: ViewName; readonly workspace: Workspace }) {
  switch (view) {
    case 'Glance':
      return <GlanceView workspace={workspace} />;
    case 'Terminals':
      return <TerminalsView terminals={workspace.terminals} onNew={() => void workspace.openShell()} />;
    case 'Processes':
      return <ProcessesView workspace={workspace} />;
    case 'Files':
      return <FilesView workspace={workspace} />;
    case 'Events':
      return <EventsView workspace={workspace} />;
  }
}
