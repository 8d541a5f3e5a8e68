// Counts the members of a message before they are decoded, because their number determines how long the decoding takes.
import type { DescMessage } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { requireSimpleJson, SIMPLE_BYTES, tooComplex } from '../bodies/json-body.ts';

/** A binary message may have this many fields, including those of the messages in it. */
const MAX_FIELDS = 64 * 1024;

/** Throws `resource_exhausted` for a message whose decoding would block the event loop. The message may be invalid. */
export function requireSimple(schema: DescMessage, payload: Buffer, codec: 'json' | 'binary'): void {
  if (payload.length <= SIMPLE_BYTES) return;
  if (codec === 'json') requireSimpleJson(payload);
  else countFields(schema, new BinaryReader(payload), payload.length, { left: MAX_FIELDS });
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
