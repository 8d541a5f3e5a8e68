import { FitAddon } from '@xterm/addon-fit';
import { SearchAddon } from '@xterm/addon-search';
import { SerializeAddon } from '@xterm/addon-serialize';
import { Unicode11Addon } from '@xterm/addon-unicode11';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { Terminal } from '@xterm/xterm';
import { bytesOfBase64 } from '../wire/envelopes.ts';
import type { CellSize } from '../wire/messages.ts';

/** Bytes that wait to be drawn: above the first number nothing more is read, below the second one reading goes on. */
const HIGH_WATER = 1024 * 1024;
const LOW_WATER = 256 * 1024;
const SCROLLBACK_LINES = 5000;
/** Lines above the screen that a reload keeps. */
const KEPT_LINES = 1000;
/** Undoes what a program may have left behind: the other screen, reports of the mouse and of pastes, and what DECSTR resets. */
const LEAVE_MODES = '\x1b[?1049l\x1b[?1000;1002;1003;1004;1006;2004l\x1b[?25h\x1b[!p';

/** The keys that phones do not have, as a terminal sends them. */
const KEYS = {
  ...{ Escape: '\x1b', Tab: '\t' },
  ...{ ArrowLeft: '\x1b[D', ArrowDown: '\x1b[B', ArrowUp: '\x1b[A', ArrowRight: '\x1b[C' },
} as const;
export type ScreenKey = keyof typeof KEYS;

const MAX_COPIED = 1024 * 1024;

/** What a program wants to be copied; null: it asks what the clipboard has, or sends no text. */
function copiedText(data: string): string | null {
  const encoded = /^[a-z0-7]*;(.+)$/s.exec(data)?.[1];
  if (encoded === undefined || encoded.length > MAX_COPIED) return null;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytesOfBase64(encoded)) || null;
  } catch {
    return null;
  }
}

/** What a screen tells. */
export interface ScreenEvents {
  onInput(bytes: Uint8Array): void;
  onResize(size: CellSize): void;
  onTitle(title: string): void;
  /** A link in the output that was chosen: `http:` or `https:`. */
  onLink(url: string): void;
  /** A program wants this text in the clipboard (OSC 52). */
  onCopy(text: string): void;
}

/** A terminal on the page. This module is loaded with the first one. */
export class Screen {
  readonly #terminal: Terminal;
  readonly #fit = new FitAddon();
  readonly #search = new SearchAddon();
  readonly #serialize = new SerializeAddon();
  /** Whether the next letter is typed with Ctrl. */
  holdsControl = false;
  #waiting = 0;
  #room: (() => void) | null = null;

  /** `element`: must be in the page, because the characters are measured. */
  constructor(element: HTMLElement, events: ScreenEvents) {
    const onLink = (_event: MouseEvent, url: string) => {
      if (/^https?:$/.test(URL.parse(url)?.protocol ?? '')) events.onLink(url);
    };
    this.#terminal = new Terminal({
      ...{ cursorBlink: true, scrollback: SCROLLBACK_LINES, minimumContrastRatio: 4.5 },
      fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace',
      theme: { background: '#16181d', foreground: '#e6e6e6' },
      linkHandler: { activate: onLink },
      // The widths of characters are proposed API.
      allowProposedApi: true,
    });
    this.#terminal.loadAddon(this.#fit);
    this.#terminal.loadAddon(this.#search);
    this.#terminal.loadAddon(this.#serialize);
    this.#terminal.loadAddon(new WebLinksAddon(onLink));
    this.#terminal.loadAddon(new Unicode11Addon());
    this.#terminal.unicode.activeVersion = '11';
    this.#terminal.open(element);
    void this.#drawFast();
    const encoder = new TextEncoder();
    this.#terminal.onData((text) => events.onInput(encoder.encode(this.#withControl(text))));
    this.#terminal.onBinary((text) =>
      events.onInput(Uint8Array.from(text, (unit) => unit.charCodeAt(0) & 0xff)),
    );
    this.#terminal.onResize(({ cols, rows }) => events.onResize({ cols, rows }));
    this.#terminal.onTitleChange((title) => events.onTitle(title));
    this.#terminal.parser.registerOscHandler(52, (data) => {
      const text = copiedText(data);
      if (text !== null) events.onCopy(text);
      return true;
    });
    this.#terminal.attachCustomKeyEventHandler((event) => this.#handleKey(event));
  }

  get size(): CellSize {
    return { cols: this.#terminal.cols, rows: this.#terminal.rows };
  }

  /** Draws output; resolves when more may be drawn. `onDrawn` is called when it is drawn. */
  async write(bytes: Uint8Array, onDrawn: () => void): Promise<void> {
    this.#waiting += bytes.length;
    this.#terminal.write(bytes, () => {
      this.#waiting -= bytes.length;
      onDrawn();
      if (this.#waiting < LOW_WATER) this.#room?.();
    });
    if (this.#waiting > HIGH_WATER)
      await new Promise<void>((resolve) => {
        this.#room = resolve;
      });
  }

  /** What is drawn, with its modes, as output that draws it again. */
  get content(): string {
    return this.#serialize.serialize({ scrollback: KEPT_LINES });
  }

  /** Draws what another screen of this size had. */
  async restore(content: string, { cols, rows }: CellSize): Promise<void> {
    this.#terminal.resize(cols, rows);
    await new Promise<void>((resolve) => this.#terminal.write(content, resolve));
  }

  /** Makes it fit for another program after one that has ended. */
  leaveModes(): void {
    this.#terminal.write(LEAVE_MODES);
  }

  /** Whether line feeds begin a new line, as they do in what is not the output of a terminal. */
  set convertsLineFeeds(value: boolean) {
    this.#terminal.options.convertEol = value;
  }

  set readsAloud(value: boolean) {
    this.#terminal.options.screenReaderMode = value;
  }

  set fontSize(pixels: number) {
    this.#terminal.options.fontSize = pixels;
    this.#fit.fit();
  }

  /** Presses a key that a keyboard may not have. */
  press(key: ScreenKey): void {
    const isApplication = this.#terminal.modes.applicationCursorKeysMode;
    const code = KEYS[key];
    this.#terminal.input(isApplication && key.startsWith('Arrow') ? code.replace('[', 'O') : code);
    this.#terminal.focus();
  }

  fit(): void {
    this.#fit.fit();
  }

  focus(): void {
    this.#terminal.focus();
  }

  /** Whether something was found. */
  find(text: string, direction: 'next' | 'previous'): boolean {
    return direction === 'next' ? this.#search.findNext(text) : this.#search.findPrevious(text);
  }

  async copy(): Promise<void> {
    const text = this.#terminal.getSelection();
    if (text !== '') await navigator.clipboard.writeText(text);
  }

  async paste(): Promise<void> {
    this.#terminal.paste(await navigator.clipboard.readText());
  }

  dispose(): void {
    this.#room?.();
    this.#terminal.dispose();
  }

  #withControl(text: string): string {
    if (!this.holdsControl) return text;
    this.holdsControl = false;
    return /^[@-_a-z]$/.test(text) ? String.fromCharCode(text.charCodeAt(0) & 0x1f) : text;
  }

  /** Draws with WebGL where there is some. */
  async #drawFast(): Promise<void> {
    try {
      const { WebglAddon } = await import('@xterm/addon-webgl');
      const addon = new WebglAddon();
      addon.onContextLoss(() => addon.dispose());
      this.#terminal.loadAddon(addon);
    } catch {
      // The slower way goes on.
    }
  }

  /** The keys that are the page's; false: the terminal does not get this one. */
  #handleKey(event: KeyboardEvent): boolean {
    if (event.altKey && event.shiftKey) return false;
    if (!event.ctrlKey || !event.shiftKey || event.type !== 'keydown') return true;
    // The page's own search.
    if (event.code === 'KeyF') return false;
    const act = { KeyC: () => this.copy(), KeyV: () => this.paste() }[event.code];
    if (!act) return true;
    event.preventDefault();
    void act().catch(() => {});
    return false;
  }
}
