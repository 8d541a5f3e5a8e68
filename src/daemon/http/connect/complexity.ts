// Counts the members of a message before they are decoded, because their number determines how long the decoding takes.
import type { DescMessage } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { EnvdError } from '../../../base/errors.ts';

/** A smaller message is decoded within some milliseconds, whatever it contains. */
const SIMPLE_BYTES = 64 * 1024;
/** A JSON text may have so many members, objects and arrays. */
const MAX_MEMBERS = 16 * 1024;
/** A JSON text may have so many elements of arrays and escaped quotes, which take less time. */
const MAX_ELEMENTS = 256 * 1024;
/** A binary message may have so many fields, including those of the messages in it. */
const MAX_FIELDS = 64 * 1024;

/** A search for a number is faster than one for a text. */
const QUOTE = 0x22;
const [BACKSLASH, COLON, COMMA, OPEN_OBJECT, OPEN_ARRAY] = Buffer.from('\\:,{[');

/** Throws `resource_exhausted` for a message whose decoding would block the event loop. The message may be invalid. */
export function requireSimple(schema: DescMessage, payload: Buffer, codec: 'json' | 'binary'): void {
  if (payload.length <= SIMPLE_BYTES) return;
  if (codec === 'json') requireSimpleJson(payload);
  else countFields(schema, new BinaryReader(payload), payload.length, { left: MAX_FIELDS });
}

/** The same for any JSON. */
export function requireSimpleJson(text: Buffer): void {
  if (text.length <= SIMPLE_BYTES) return;
  let members = MAX_MEMBERS;
  const elements = { left: MAX_ELEMENTS };
  for (let at = 0; at < text.length; at++) {
    const byte = text[at];
    if (byte === QUOTE) at = endOfString(text, at + 1, elements);
    else if (byte === COLON || byte === OPEN_OBJECT || byte === OPEN_ARRAY) members--;
    else if (byte === COMMA) elements.left--;
    if (members < 0) throw tooComplex(`${MAX_MEMBERS} members, objects and arrays`);
    if (elements.left < 0) throw tooComplex(`${MAX_ELEMENTS} elements and escaped quotes`);
  }
}

/** Returns the position of the quote that ends a string, or the length of the text if there is none. */
function endOfString(text: Buffer, start: number, elements: { left: number }): number {
  elements.left--;
  for (let quote = text.indexOf(QUOTE, start); quote >= 0; quote = text.indexOf(QUOTE, quote + 1)) {
    let before = quote;
    while (before > start && text[before - 1] === BACKSLASH) before--;
    if ((quote - before) % 2 === 0 || --elements.left < 0) return quote;
  }
  return text.length;
}

/** Counts the fields of a message. It skips unreadable ones, which the decoding will refuse. */
function countFields(schema: DescMessage, reader: BinaryReader, end: number, fields: { left: number }): void {
  while (reader.pos < end) {
    if (--fields.left < 0) throw tooComplex(`${MAX_FIELDS} fields`);
    const [number, type] = reader.tag();
    const field = schema.fields.find((one) => one.number === number);
    if (type === WireType.LengthDelimited && field?.fieldKind === 'message') {
      const length = reader.uint32();
      countFields(field.message, reader, Math.min(reader.pos + length, end), fields);
    } else {
      // A map entry counts as four fields: it is a message with a name and a value, and becomes a member of an object.
      if (field?.fieldKind === 'map') fields.left -= 3;
      reader.skip(type, number);
    }
  }
}

function tooComplex(most: string): EnvdError {
  return new EnvdError('resource_exhausted', `request has more than ${most}: send less at a time`);
}
