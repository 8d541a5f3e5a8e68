const ESC = 0x1b;
const CAN = 0x18;
const SUB = 0x1a;
const BEL = 0x07;
const LEFT_BRACKET = 0x5b;
const RIGHT_BRACKET = 0x5d;
/** These begin a text that is not shown, such as a title: DCS, SOS, OSC, PM and APC. */
const STRINGS = new Set(Buffer.from('PX]^_'));
/** Only sequences that end with these are looked at. */
const FINALS = new Set(Buffer.from('=>chlpq'));

/** In colored text the next sequence is often within this many bytes. */
const NEAR_BYTES = 24;
/** So much of a sequence is kept. A longer one sets no mode here. */
const MOST_BYTES = 128;

/** The modes of a group replace each other. */
const GROUPS: readonly (readonly number[])[] = [
  // The alternate screen, the reports of the mouse, and their encodings.
  [47, 1047, 1049],
  [9, 1000, 1001, 1002, 1003],
  [1005, 1006, 1015, 1016],
  // The cursor keys and the keypad of applications, the reports of the focus, and the marks of pastes.
  ...[[1], [66], [1004], [2004]],
];
const GROUP_OF = new Map(GROUPS.flatMap((modes, group) => modes.map((mode) => [mode, group] as const)));
const ALTERNATE = 0;
const CURSOR_KEYS = 3;
const KEYPAD = 4;
/** A terminal that was reset has these modes: lines wrap, and the cursor is visible. */
const ON_AT_FIRST = new Set([7, 25]);

/**
 * Follows the modes that a program sets in its terminal. The output comes in pieces of any size, and an endless sequence takes no
 * more memory than a short one. Sources: ECMA-48, xterm's ctlseqs, and the parser of https://vt100.net/emu/dec_ansi_parser.
 */
export class ScreenModes {
  /** The mode of each group that has one. */
  readonly #on = new Map<number, number>();
  readonly #off = new Set<number>();
  #cursorStyle = '';
  /** A sequence that has begun and not ended, without control characters in it. Outside of one, the length is 0. */
  readonly #begun = Buffer.alloc(MOST_BYTES);
  #length = 0;
  /** The character that has begun a string, or 0 outside of one. */
  #string = 0;

  scan(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; at++) {
      if (this.#length === 0) at = escapeIn(bytes, at);
      else if (this.#string !== 0 && this.#length >= MOST_BYTES) at = controlIn(bytes, at);
      if (at < 0) return;
      const end = this.#length === 0 ? endOfOther(bytes, at) : -1;
      if (end < 0) this.#take(bytes[at] ?? 0);
      else at = end;
    }
  }

  /** Tells whether the program covers what the terminal had shown before. */
  get isAlternate(): boolean {
    return this.#on.has(ALTERNATE);
  }

  /** Returns sequences that set the modes in a terminal that was reset. They are no longer than the output that set them. */
  get sequences(): string {
    const on = [...this.#on].filter(([group]) => group !== KEYPAD).map(([, mode]) => mode);
    const set = on.length > 0 ? `\x1b[?${on.join(';')}h` : '';
    const reset = this.#off.size > 0 ? `\x1b[?${[...this.#off].join(';')}l` : '';
    return `${set}${reset}${this.#on.has(KEYPAD) ? '\x1b=' : ''}${this.#cursorStyle}`;
  }

  /** Returns the beginning of the sequence that the next output continues, in Latin-1. */
  get begun(): string {
    return this.#begun.toString('latin1', 0, Math.min(this.#length, MOST_BYTES));
  }

  #take(byte: number): void {
    const isCanceled = byte === ESC || byte === CAN || byte === SUB;
    if (isCanceled || (byte === BEL && this.#string === RIGHT_BRACKET)) this.#length = this.#string = 0;
    if (byte === ESC) this.#keep(byte);
    else if (this.#string !== 0) this.#keep(byte);
    // Terminals obey a control character within a sequence, and go on with the sequence.
    else if (this.#length > 0 && byte >= 0x20 && byte !== 0x7f) this.#continue(byte);
  }

  #continue(byte: number): void {
    this.#keep(byte);
    if (this.#length === 2 && STRINGS.has(byte)) this.#string = byte;
    else if (this.#isAtEnd(byte)) {
      if (FINALS.has(byte) && this.#length <= MOST_BYTES) this.#apply(this.begun.slice(1));
      this.#length = 0;
    }
  }

  #keep(byte: number): void {
    if (this.#length < MOST_BYTES) this.#begun[this.#length] = byte;
    this.#length += 1;
  }

  #isAtEnd(byte: number): boolean {
    if (byte > 0x7f) return true;
    if (this.#length > 2 && this.#begun[1] === LEFT_BRACKET) return byte >= 0x40;
    return byte >= 0x30 && (this.#length > 2 || byte !== LEFT_BRACKET);
  }

  #apply(sequence: string): void {
    const [, modes, change] = /^\[\?([\d;]+)([hl])$/.exec(sequence) ?? [];
    for (const mode of modes?.split(';') ?? []) this.#set(Number(mode), change === 'h');
    if (sequence === '=' || sequence === '>') this.#set(66, sequence === '=');
    const [, style] = /^\[(\d?) q$/.exec(sequence) ?? [];
    if (style !== undefined) this.#cursorStyle = Number(style) === 0 ? '' : `\x1b${sequence}`;
    if (sequence === 'c') this.#reset();
    // A soft reset keeps the screen, and what the terminal reports.
    if (sequence === '[!p') for (const group of [CURSOR_KEYS, KEYPAD]) this.#on.delete(group);
    if (sequence === '[!p') this.#off.clear();
  }

  #set(mode: number, isOn: boolean): void {
    const group = GROUP_OF.get(mode);
    if (group !== undefined) {
      if (isOn) this.#on.set(group, mode);
      else this.#on.delete(group);
    }
    if (!ON_AT_FIRST.has(mode)) return;
    if (isOn) this.#off.delete(mode);
    else this.#off.add(mode);
  }

  #reset(): void {
    this.#on.clear();
    this.#off.clear();
    this.#cursorStyle = '';
  }
}

/** Returns the end of a sequence that is whole and sets no mode, such as a color, or -1. Most sequences are of this kind. */
function endOfOther(bytes: Buffer, from: number): number {
  if (bytes[from + 1] !== LEFT_BRACKET) return -1;
  for (let at = from + 2; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    if (byte >= 0x30 && byte <= 0x3b) continue;
    return byte >= 0x40 && byte < 0x7f && !FINALS.has(byte) ? at : -1;
  }
  return -1;
}

/** Returns the position of the next sequence, or -1. A search in native code is fast, but a call of it takes as long as these bytes. */
function escapeIn(bytes: Buffer, from: number): number {
  const near = Math.min(bytes.length, from + NEAR_BYTES);
  for (let at = from; at < near; at++) if (bytes[at] === ESC) return at;
  return bytes.indexOf(ESC, near);
}

/** Returns the position of the next control character, or -1. */
function controlIn(bytes: Buffer, from: number): number {
  for (let at = from; at < bytes.length; at++) if ((bytes[at] ?? 0) < 0x20) return at;
  return -1;
}
