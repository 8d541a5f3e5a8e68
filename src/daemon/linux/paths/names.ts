import { isUtf8 } from 'node:buffer';

/**
 * File names are bytes, and texts on the wire are Unicode. Each byte that is not part of valid UTF-8 becomes the
 * character U+EF00 + byte in a text, and becomes that byte again in a name. The bytes of a character that already is in
 * this range are encoded in the same way. So `encodeName` gives each name exactly one text, and `decodeName` gives the
 * name back.
 */

/** The characters U+EF80 to U+EFFF stand for a byte each. */
const ESCAPE = /[\uef80-\uefff]/;
const ESCAPES = /[\uef80-\uefff]+/g;
const BASE = 0xef00;
/** `encodeName` works byte by byte only on texts with escapes, or with the character that replaces invalid bytes. */
const SUSPECT = /[\ufffd\uef80-\uefff]/;

/** Returns the text of a name or path. */
export function encodeName(name: Buffer): string {
  const text = name.toString();
  return SUSPECT.test(text) ? encodeBytes(name) : text;
}

/** Returns the name or path that a text means. */
export function decodeName(text: string): Buffer {
  if (!ESCAPE.test(text)) return Buffer.from(text);
  const pieces: Buffer[] = [];
  let at = 0;
  for (const { 0: escapes, index } of text.matchAll(ESCAPES)) {
    pieces.push(Buffer.from(text.slice(at, index)));
    pieces.push(Buffer.from(Array.from(escapes, (character) => character.charCodeAt(0) - BASE)));
    at = index + escapes.length;
  }
  return Buffer.concat([...pieces, Buffer.from(text.slice(at))]);
}

/** Returns the path as `encodeName` writes it. A client may have written valid UTF-8 as escapes. */
export function canonicalName(text: string): string {
  return ESCAPE.test(text) ? encodeName(decodeName(text)) : text;
}

function encodeBytes(name: Buffer): string {
  let text = '';
  for (let at = 0; at < name.length; ) {
    const length = characterLength(name, at);
    const character = name.toString('utf8', at, at + length);
    const isPlain = length > 0 && !ESCAPE.test(character);
    const escaped = name.subarray(at, at + Math.max(1, length));
    text += isPlain ? character : String.fromCharCode(...Array.from(escaped, (byte) => BASE + byte));
    at += escaped.length;
  }
  return text;
}

/** Returns the number of bytes of the character at `at`, or 0 when the bytes there are not valid. */
function characterLength(name: Buffer, at: number): number {
  const first = name[at] ?? 0;
  const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  return isUtf8(name.subarray(at, at + length)) ? length : 0;
}
