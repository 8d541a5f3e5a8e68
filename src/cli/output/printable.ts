/**
 * A terminal may act on these characters, or they change how a line is read: control characters (C0, DEL, C1), line and
 * paragraph separators, marks that change the direction of text, and surrogates without their other half.
 */
const UNSAFE = /\p{Cc}|[\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|\p{Surrogate}/gu;
/** The protocol sends a byte that is not UTF-8 as the character U+EF00 + byte. */
const RAW_BYTE = /[\uef80-\uefff]/g;

/** Returns text on one line, in which every unsafe character is an escape such as `\n`, `\x1b` or `\u202e`. */
export function printable(text: string): string {
  return text.replace(UNSAFE, escapeOf).replace(RAW_BYTE, (unit) => hex(unit.charCodeAt(0) - 0xef00));
}

/** Does the same as `printable` for text of several lines, in which line feeds and tabs stay. */
export function printableLines(text: string): string {
  return text.replace(/[^\n\t]+/g, printable);
}

/** Returns JSON on one line, in which every unsafe character is a JSON escape. */
export function safeJson(value: unknown): string {
  // Unsafe characters can only occur within strings, where JSON allows escapes.
  return JSON.stringify(value, bigintAsText).replace(
    UNSAFE,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

function bigintAsText(_name: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}

function escapeOf(unit: string): string {
  if (unit === '\n') return '\\n';
  if (unit === '\r') return '\\r';
  if (unit === '\t') return '\\t';
  const code = unit.charCodeAt(0);
  return code < 0x100 ? hex(code) : `\\u${code.toString(16).padStart(4, '0')}`;
}

function hex(byte: number): string {
  return `\\x${byte.toString(16).padStart(2, '0')}`;
}

/**
 * Returns the number of terminal cells that printable text takes. Wide East Asian characters and emoji take two, and
 * combining marks none.
 */
export function widthOf(text: string): number {
  let width = text.length;
  for (const character of text.match(NOT_ONE_CELL) ?? [])
    width += (/^\p{M}/u.test(character) ? 0 : 2) - character.length;
  return width;
}

/** Returns printable text that takes at most this number of cells. An ellipsis ends what was cut off. */
export function clippedTo(text: string, cells: number): string {
  if (widthOf(text) <= cells) return text;
  let [kept, width] = ['', 0];
  for (const character of text) {
    width += widthOf(character);
    if (width >= cells) break;
    kept += character;
  }
  return cells > 0 ? `${kept}…` : '';
}

const NOT_ONE_CELL =
  /\p{M}|[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{10000}-\u{10ffff}]/gu;
