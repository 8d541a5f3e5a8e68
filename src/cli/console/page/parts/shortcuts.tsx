import { useEffect, useRef } from 'preact/hooks';

/** The keys of the page, by where they work. */
const SHORTCUTS: readonly (readonly [where: string, keys: string, what: string])[] = [
  ['Everywhere', 'Ctrl+K', 'commands; in a terminal, whose key this is, Alt+Shift+K'],
  ['', '?', 'this list'],
  ['', 'Alt+Shift+1 to 5', 'a view'],
  ['', 'Alt+Shift+T', 'a new terminal'],
  ['Terminals', 'Ctrl+Shift+C', 'copy'],
  ['', 'Ctrl+Shift+V', 'paste'],
  ['', 'Ctrl+Shift+F', 'search'],
  ['', 'F2, Delete', 'rename or close the tab that has the focus'],
  ['', 'Shift+← →', 'move it'],
  ['Tables', 'Arrow keys', 'choose a row'],
  ['', 'Enter', 'open it'],
  ['', 'Shift and arrow keys', 'choose several; so do Shift and Ctrl with a click'],
  ['', 'Shift+F10', 'a menu of what can be done'],
  ['', 'Delete', 'delete a file, signal a process'],
  ['Processes', '← →', 'close and open what is below one'],
  ['Files', 'Backspace', 'the directory above'],
  ['', 'F2', 'rename'],
  ['', 'Ctrl+S, Ctrl+F', 'save an edit, search in it'],
  ['', 'Esc, then Tab', 'leave the editor, where Tab indents'],
];

export function ShortcutList({ onClose }: { onClose(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="shortcuts" onClose={onClose}>
      <h2 id="shortcuts">Keyboard shortcuts</h2>
      <table class="shortcuts">
        <tbody>
          {SHORTCUTS.map(([where, keys, what]) => (
            <tr key={keys + what}>
              <td class="muted">{where}</td>
              <td>
                <kbd>{keys}</kbd>
              </td>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <form method="dialog" class="buttons">
        <button type="submit" class="primary">
          Close
        </button>
      </form>
    </dialog>
  );
}
