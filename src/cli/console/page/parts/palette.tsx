import { useEffect, useRef, useState } from 'preact/hooks';
import { printable } from '../../../output/printable.ts';

/** Something that the user can do, by its name. */
export interface PageCommand {
  readonly name: string;
  /** The keys that do it, too. */
  readonly keys?: string;
  run(): void;
}

interface PaletteProps {
  readonly commands: readonly PageCommand[];
  onClose(): void;
}

const MAX_SHOWN = 50;
const OPTION_ID = 'command-';

/** Finds a command by some letters of its words. */
export function Palette({ commands, onClose }: PaletteProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  useEffect(() => dialog.current?.showModal(), []);
  const found = commands.filter(({ name }) => isMatch(name, text)).slice(0, MAX_SHOWN);
  const chosen = Math.min(at, found.length - 1);
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: 'nearest' }), [chosen]);
  const run = (command: PageCommand | undefined) => {
    if (!command) return;
    // Before the command, which may move the focus.
    dialog.current?.close();
    command.run();
  };
  const handleKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Enter') run(found[chosen]);
    else if (step) setAt((chosen + step + found.length) % Math.max(1, found.length));
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Commands" onClose={onClose}>
      <input
        role="combobox"
        aria-label="Command"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant={found.length > 0 ? OPTION_ID + chosen : undefined}
        placeholder="Type a command, a terminal or a sandbox"
        autocomplete="off"
        spellcheck={false}
        autofocus
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={handleKey}
      />
      <div ref={list} id="commands" class="options" role="listbox" aria-label="Commands">
        {found.map((command, index) => (
          <div
            key={command.name}
            id={OPTION_ID + index}
            role="option"
            aria-selected={index === chosen}
            onClick={() => run(command)}
          >
            <span>{printable(command.name)}</span>
            {command.keys !== undefined && <kbd>{command.keys}</kbd>}
          </div>
        ))}
      </div>
      <p class="muted" role="status">
        {found.length === 0 ? 'There is no such command.' : ''}
      </p>
    </dialog>
  );
}

/** Whether each word of a text begins or continues a word of the name. */
function isMatch(name: string, text: string): boolean {
  const lower = name.toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => lower.includes(word));
}
