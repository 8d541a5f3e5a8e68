import { useEffect, useRef, useState } from 'preact/hooks';
import { counted } from '../../../output/formats.ts';
import { useValue } from '../state/observable.ts';
import type { ScreenKey } from './screen.ts';
import type { TerminalTab } from './terminal-tab.ts';
import { FONT_SIZES, type Terminals } from './terminals.ts';

interface PanelProps {
  readonly tab: TerminalTab;
  readonly terminals: Terminals;
}

/** The screen of a tab, with what belongs to it. */
export function TerminalPanel({ tab, terminals }: PanelProps) {
  const holder = useRef<HTMLDivElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (holder.current) tab.show(holder.current);
    return () => tab.element.remove();
  }, [tab]);
  const search = (event: KeyboardEvent) => {
    if (!event.ctrlKey || !event.shiftKey || event.code !== 'KeyF') return;
    event.preventDefault();
    panel.current?.querySelector<HTMLInputElement>('[type=search]')?.focus();
  };
  return (
    <div class="panel" id="screen" role="tabpanel" aria-label="Terminal" ref={panel} onKeyDown={search}>
      <div class="holder" ref={holder} />
      <TerminalNote tab={tab} />
      <MissingKeys tab={tab} />
      <TerminalTools tab={tab} terminals={terminals} />
    </div>
  );
}

/** What the console says, beside the screen, which is the program's. It has its place also when it is empty. */
function TerminalNote({ tab }: { readonly tab: TerminalTab }) {
  const { note, offered } = useValue(tab.state);
  return (
    <div class="note" role="status">
      {offered === null ? (
        <span title={note}>{note}</span>
      ) : (
        <>
          <span>The program wants to put {counted(offered.length, 'character')} into your clipboard.</span>
          <button type="button" onClick={() => void tab.copyOffered()}>
            Allow
          </button>
          <button type="button" onClick={() => tab.refuseOffered()}>
            Refuse
          </button>
        </>
      )}
    </div>
  );
}

const MISSING: readonly (readonly [label: string, key: ScreenKey, name?: string])[] = [
  ['Esc', 'Escape'],
  ['Tab', 'Tab'],
  ['←', 'ArrowLeft', 'Left'],
  ['↑', 'ArrowUp', 'Up'],
  ['↓', 'ArrowDown', 'Down'],
  ['→', 'ArrowRight', 'Right'],
];

/** The keys that the keyboard of a phone does not have; the style shows them there. */
function MissingKeys({ tab }: { readonly tab: TerminalTab }) {
  return (
    <div class="bar missing" role="group" aria-label="Keys">
      <button
        type="button"
        title="The next letter is typed with Ctrl"
        onClick={() => {
          if (tab.screen) tab.screen.holdsControl = true;
          tab.screen?.focus();
        }}
      >
        Ctrl
      </button>
      {MISSING.map(([label, key, name]) => (
        <button key={key} type="button" aria-label={name} onClick={() => tab.screen?.press(key)}>
          {label}
        </button>
      ))}
    </div>
  );
}

function TerminalTools({ tab, terminals }: PanelProps) {
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
        title="Ctrl+Shift+F"
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
      <FontSize terminals={terminals} />
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

function FontSize({ terminals: { fontSize } }: { readonly terminals: Terminals }) {
  const size = useValue(fontSize);
  return (
    <>
      <button
        type="button"
        aria-label="A−, smaller text"
        disabled={size <= FONT_SIZES.least}
        onClick={() => fontSize.set(size - 1)}
      >
        A−
      </button>
      <button
        type="button"
        aria-label="A+, larger text"
        disabled={size >= FONT_SIZES.most}
        onClick={() => fontSize.set(size + 1)}
      >
        A+
      </button>
    </>
  );
}
