import { useEffect, useRef, useState } from 'preact/hooks';
import { useValue } from '../state/observable.ts';
import type { TerminalTab } from './terminal-tab.ts';
import { MAX_TABS, type Terminals } from './terminals.ts';

export function TerminalsView({ terminals }: { readonly terminals: Terminals }) {
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
        <button
          type="button"
          class="primary"
          disabled={tabs.length >= MAX_TABS}
          onClick={() => terminals.openShell()}
        >
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
  const { title, status } = useValue(tab.state);
  const close = () => void terminals.close(tab);
  const move = (event: KeyboardEvent) => {
    if (event.key === 'Delete') return close();
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
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
      title="Delete closes it"
      onClick={() => terminals.current.set(tab)}
      onAuxClick={({ button }) => button === 1 && close()}
      onKeyDown={move}
    >
      {title}
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

function TerminalPanel({ tab, terminals }: { readonly tab: TerminalTab; readonly terminals: Terminals }) {
  const holder = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (holder.current) tab.show(holder.current);
    return () => tab.element.remove();
  }, [tab]);
  return (
    <div class="panel" id="screen" role="tabpanel" aria-label="Terminal">
      <div class="holder" ref={holder} />
      <TerminalTools tab={tab} terminals={terminals} />
    </div>
  );
}

function TerminalTools({ tab, terminals }: { readonly tab: TerminalTab; readonly terminals: Terminals }) {
  const [text, setText] = useState('');
  const [isMissing, setMissing] = useState(false);
  const find = (direction: 'next' | 'previous') =>
    setMissing(text !== '' && !tab.screen?.find(text, direction));
  return (
    <form
      class="bar tools"
      onSubmit={(event) => {
        event.preventDefault();
        find('next');
      }}
    >
      <input
        type="search"
        aria-label="Search in the terminal"
        placeholder="Search"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit">Next</button>
      <button type="button" onClick={() => find('previous')}>
        Previous
      </button>
      <span role="status">{isMissing ? 'not found' : ''}</span>
      <span class="grow" />
      <button type="button" title="Ctrl+Shift+C" onClick={() => void tab.screen?.copy().catch(() => {})}>
        Copy
      </button>
      <button type="button" title="Ctrl+Shift+V" onClick={() => void tab.screen?.paste().catch(() => {})}>
        Paste
      </button>
      <label class="check">
        <input
          type="checkbox"
          onChange={(event) => {
            if (tab.screen) tab.screen.readsAloud = event.currentTarget.checked;
          }}
        />
        Screen reader
      </label>
      <button type="button" onClick={() => void terminals.close(tab)}>
        Close
      </button>
    </form>
  );
}
