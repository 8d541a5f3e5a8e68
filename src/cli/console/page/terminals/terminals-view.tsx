import { useValue } from '../state/observable.ts';
import { TerminalPanel } from './terminal-panel.tsx';
import type { TerminalTab } from './terminal-tab.ts';
import { MAX_TABS, type Terminals } from './terminals.ts';

interface TerminalsProps {
  readonly terminals: Terminals;
  onNew(): void;
}

export function TerminalsView({ terminals, onNew }: TerminalsProps) {
  const tabs = useValue(terminals.tabs);
  const current = useValue(terminals.current);
  return (
    <div class="terminals">
      <div class="bar">
        <div class="tabs" {...(tabs.length > 0 && { role: 'tablist', 'aria-label': 'Terminals' })}>
          {tabs.map((tab, index) => (
            <TabButton key={tab} {...{ tab, terminals, index, isCurrent: tab === current }} />
          ))}
        </div>
        <button type="button" class="primary" disabled={tabs.length >= MAX_TABS} onClick={onNew}>
          New terminal
        </button>
        {tabs.length >= MAX_TABS && <span class="muted">{MAX_TABS} tabs are the most.</span>}
      </div>
      {current ? (
        <TerminalPanel key={current} tab={current} terminals={terminals} />
      ) : (
        <p class="empty">No terminal is open. A new one runs a shell; it goes on when this page is closed.</p>
      )}
    </div>
  );
}

interface TabButtonProps {
  readonly tab: TerminalTab;
  readonly terminals: Terminals;
  readonly index: number;
  readonly isCurrent: boolean;
}

function TabButton({ tab, terminals, index, isCurrent }: TabButtonProps) {
  const { title, name, status } = useValue(tab.state);
  const close = () => void terminals.close(tab);
  const move = (event: KeyboardEvent) => {
    if (event.key === 'Delete') return close();
    if (event.key === 'F2') return void terminals.rename(tab);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && event.shiftKey) return terminals.move(tab, step);
    const next = step && terminals.tabs.value[index + step];
    if (!next) return;
    terminals.current.set(next);
    const list = (event.currentTarget as HTMLElement).parentElement;
    (list?.children[index + step] as HTMLElement | undefined)?.focus();
  };
  return (
    <button
      type="button"
      role="tab"
      aria-selected={isCurrent}
      aria-controls={isCurrent ? 'screen' : undefined}
      tabIndex={isCurrent ? 0 : -1}
      class="tab"
      title="F2 or a double click renames it, Shift with an arrow key moves it, Delete closes it"
      onClick={() => terminals.current.set(tab)}
      onDblClick={({ target, currentTarget }) => target === currentTarget && void terminals.rename(tab)}
      onAuxClick={({ button }) => button === 1 && close()}
      onKeyDown={move}
    >
      {name ?? title}
      {status !== 'running' && <span class="muted"> {status}</span>}
      <span
        class="close"
        aria-hidden="true"
        onClick={(event) => {
          event.stopPropagation();
          close();
        }}
      >
        ×
      </span>
    </button>
  );
}
