import type { DescMessage } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { Failure } from '../output/failure.ts';

/** Shorter messages are decoded without a look at their parts, in bytes. */
const SHORT = 1024 * 1024;
/** A message may have this many messages in it. A listing of two million entries has as many. */
const MOST = 4_000_000;

/**
 * Throws a `Failure` for a message with too many messages in it, because an empty one takes a hundred times as much memory as its
 * bytes. Throws the errors of the decoding for some of the messages that are invalid.
 */
export function requireFewParts(schema: DescMessage, bytes: Buffer): void {
  if (bytes.length > SHORT) count(schema, new BinaryReader(bytes), bytes.length, { left: MOST });
}

function count(schema: DescMessage, reader: BinaryReader, end: number, parts: { left: number }): void {
  while (reader.pos < end) {
    const [number, type] = reader.tag();
    const field = schema.fields.find((one) => one.number === number);
    // A map has an entry for each.
    if ((field?.message || field?.fieldKind === 'map') && --parts.left < 0)
      throw new Failure('failed', `the daemon sent a message with more than ${MOST} messages in it`);
    if (type === WireType.LengthDelimited && field?.message && field.fieldKind !== 'map')
      count(field.message, reader, Math.min(reader.uint32() + reader.pos, end), parts);
    else reader.skip(type, number);
  }
}
