import { isUtf8 } from 'node:buffer';
import {
  create,
  type DescEnum,
  type DescMessage,
  fromBinary,
  fromJson,
  fromJsonString,
  type JsonValue,
  type MessageShape,
  toBinary,
  toJsonString,
} from '@bufbuild/protobuf';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import { requireSimple } from './complexity.ts';
import { putLargeBytes, takeLargeBytes } from './large-bytes.ts';

/** The codecs of Connect: JSON and binary protobuf. */
export type Codec = 'json' | 'binary';

/** The envelope of a frame has one byte of flags, and four bytes of length, big endian. */
export const ENVELOPE_BYTES = 5;
/** The flags of a frame. Source: Connect protocol, "Streaming RPCs". */
export const COMPRESSED_FLAG = 0b01;
export const END_STREAM_FLAG = 0b10;

/** Writes the envelope of a payload of `length` bytes. Returns the offset of the payload. */
export function writeEnvelope(frame: Buffer, flags: number, length: number): number {
  frame.writeUInt8(flags, 0);
  return frame.writeUInt32BE(length, 1);
}

export function frameOf(flags: number, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(ENVELOPE_BYTES + payload.length);
  frame.set(payload, writeEnvelope(frame, flags, payload.length));
  return frame;
}

export function encodeFrame<Desc extends DescMessage>(
  schema: Desc,
  message: MessageShape<Desc>,
  codec: Codec,
): Buffer {
  const payload = codec === 'json' ? Buffer.from(toJsonString(schema, message)) : toBinary(schema, message);
  return frameOf(0, payload);
}

/** A longer JSON text is searched for large values of `bytes` fields. */
const LARGE_TEXT = 128 * 1024;

/**
 * Decodes a message. Throws `invalid_argument` for a payload that is not a valid message, and `resource_exhausted` for one whose
 * decoding would take too long.
 */
export function decodeMessage<Desc extends DescMessage>(
  schema: Desc,
  payload: Buffer,
  codec: Codec,
  ignoreUnknownFields: boolean,
): MessageShape<Desc> {
  try {
    requireSimple(schema, payload, codec);
    if (codec === 'binary') return fromBinary(schema, payload);
    // Without this check, replacement characters would turn a path into another one.
    if (!isUtf8(payload)) throw new Error(`cannot decode message ${schema.typeName} from JSON: invalid UTF8`);
    return decodeJson(schema, payload.toString('utf8'), ignoreUnknownFields);
  } catch (error) {
    if (error instanceof EnvdError) throw error;
    // protobuf-es' errors for JSON name the message or the field already.
    const name = codec === 'json' ? '' : `cannot decode message ${schema.typeName}: `;
    const text = `${name}${messageOf(error)}`;
    throw new EnvdError('invalid_argument', text, { cause: error });
  }
}

function decodeJson<Desc extends DescMessage>(
  schema: Desc,
  text: string,
  ignoreUnknownFields: boolean,
): MessageShape<Desc> {
  // Calls without parameters have this body.
  if (text === '{}') return create(schema);
  if (text.length < LARGE_TEXT) {
    const message = fromJsonString(schema, text, { ignoreUnknownFields });
    refuseUnknownNames(schema, text);
    return message;
  }
  const json = parseJson(schema, text);
  const large = takeLargeBytes(schema, json);
  const message = fromJson(schema, json, { ignoreUnknownFields });
  refuseUnknownNames(schema, json);
  putLargeBytes(schema, message, large);
  return message;
}

/** Parses JSON. Its errors are worded like those of protobuf-es, whose details the log leaves out (call-log.ts). */
function parseJson({ typeName }: DescMessage, text: string): JsonValue {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`cannot decode message ${typeName} from JSON: ${messageOf(error)}`, { cause: error });
  }
}

/** An error quotes at most this many characters of a name. */
const MAX_QUOTED = 64;

/** Returns the values of an enum, for error messages. */
export function choicesOf({ values }: DescEnum): string {
  const names = values.filter(({ number }) => number !== 0).map(({ name, number }) => `${name} (${number})`);
  return `${names.join(', ')} or a number`;
}

/**
 * Throws `invalid_argument` for an unknown name of an enum value in a top-level field. When protobuf-es ignores unknown fields,
 * it ignores such names too.
 */
function refuseUnknownNames({ fields }: DescMessage, json: JsonValue): void {
  const enums = fields.filter((field) => field.fieldKind === 'enum');
  if (enums.length === 0) return;
  const members: Readonly<Record<string, unknown>> = typeof json === 'string' ? JSON.parse(json) : json;
  for (const field of enums) {
    const value = members[field.jsonName] ?? members[field.name];
    if (typeof value !== 'string' || field.enum.values.some(({ name }) => name === value)) continue;
    const quoted = value.length > MAX_QUOTED ? `${value.slice(0, MAX_QUOTED)}…` : value;
    const text = `unknown ${field.name} '${quoted}': use ${choicesOf(field.enum)}`;
    throw new EnvdError('invalid_argument', text);
  }
}
