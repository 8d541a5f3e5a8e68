// Counts what has to be decoded before it is decoded: the time depends on the number of members, not on bytes.
import type { DescMessage } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { EnvdError } from '../../../base/errors.ts';

/** Smaller messages are decoded within some milliseconds, whatever they contain. */
const SIMPLE_BYTES = 64 * 1024;
/** Members, objects and arrays of a JSON text: each takes up to 2 µs. */
const MAX_MEMBERS = 16 * 1024;
/** Elements of arrays, and escaped quotes: each takes up to 0.1 µs. */
const MAX_ELEMENTS = 256 * 1024;
/** Fields of a binary message and of the messages in it: each takes up to 0.5 µs. */
const MAX_FIELDS = 64 * 1024;

const [QUOTE, BACKSLASH, COLON, COMMA, OPEN_OBJECT, OPEN_ARRAY] = Buffer.from('"\\:,{[');

/** Throws `resource_exhausted` for a message whose decoding would block the event loop. The message may be invalid. */
export function requireSimple(schema: DescMessage, payload: Buffer, codec: 'json' | 'binary'): void {
  if (payload.length <= SIMPLE_BYTES) return;
  if (codec === 'json') countJson(payload);
  else countFields(schema, new BinaryReader(payload), payload.length, { left: MAX_FIELDS });
}

function countJson(text: Buffer): void {
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

/** The position of the quote that ends a string; the length of the text if there is none. */
function endOfString(text: Buffer, start: number, elements: { left: number }): number {
  elements.left--;
  for (let quote = text.indexOf('"', start); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let before = quote;
    while (before > start && text[before - 1] === BACKSLASH) before--;
    if ((quote - before) % 2 === 0 || --elements.left < 0) return quote;
  }
  return text.length;
}

/** Skips unreadable fields: decoding will refuse them. */
function countFields(schema: DescMessage, reader: BinaryReader, end: number, fields: { left: number }): void {
  while (reader.pos < end) {
    if (--fields.left < 0) throw tooComplex(`${MAX_FIELDS} fields`);
    const [number, type] = reader.tag();
    const field = schema.fields.find((one) => one.number === number);
    if (type === WireType.LengthDelimited && field?.fieldKind === 'message') {
      const length = reader.uint32();
      countFields(field.message, reader, Math.min(reader.pos + length, end), fields);
    } else {
      // A map entry: a name, a value, and a member of an object.
      if (field?.fieldKind === 'map') fields.left -= 3;
      reader.skip(type, number);
    }
  }
}

function tooComplex(most: string): EnvdError {
  return new EnvdError('resource_exhausted', `request has more than ${most}: send less at a time`);
}
