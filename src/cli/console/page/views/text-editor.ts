import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState } from '@codemirror/state';
import {
  EditorView,
  highlightActiveLine,
  highlightSpecialChars,
  keymap,
  lineNumbers,
} from '@codemirror/view';

/** What an editor is made with. */
export interface TextEditorOptions {
  /** With line feeds alone. */
  readonly text: string;
  readonly label: string;
  onChange(): void;
  onSave(): void;
}

/** The colors of the page. */
const THEME = EditorView.theme({
  '&': { height: '100%', color: 'var(--text)', backgroundColor: 'var(--back)' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '-2px' },
  '.cm-scroller': { font: '13px / 1.4 ui-monospace, monospace' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-gutters, .cm-panels, &.cm-editor .cm-activeLine, &.cm-editor .cm-activeLineGutter': {
    ...{ color: 'inherit', backgroundColor: 'var(--raised)', borderColor: 'var(--line)' },
  },
  '&.cm-editor .cm-button, &.cm-editor .cm-textfield': {
    ...{ background: 'var(--back)', border: '1px solid var(--line)', fontSize: 'inherit' },
  },
});

/** An editor with the numbers of lines. Tab indents; after Escape it leaves the editor. This module is loaded with the first one. */
export class TextEditor {
  readonly #view: EditorView;
  readonly #readOnly = new Compartment();

  constructor(parent: HTMLElement, { text, label, onChange, onSave }: TextEditorOptions) {
    const run = () => {
      onSave();
      return true;
    };
    this.#view = new EditorView({
      parent,
      doc: text,
      extensions: [
        ...[lineNumbers(), history(), search({ top: true }), highlightSpecialChars(), highlightActiveLine()],
        keymap.of([
          { key: 'Mod-s', run },
          ...searchKeymap,
          ...defaultKeymap,
          ...historyKeymap,
          indentWithTab,
        ]),
        EditorView.contentAttributes.of({ 'aria-label': label }),
        EditorView.updateListener.of(({ docChanged }) => docChanged && onChange()),
        this.#readOnly.of(EditorState.readOnly.of(false)),
        THEME,
      ],
    });
    this.#view.focus();
  }

  get text(): string {
    return this.#view.state.doc.toString();
  }

  get isReadOnly(): boolean {
    return this.#view.state.readOnly;
  }

  set isReadOnly(value: boolean) {
    this.#view.dispatch({ effects: this.#readOnly.reconfigure(EditorState.readOnly.of(value)) });
  }

  dispose(): void {
    this.#view.destroy();
  }
}
