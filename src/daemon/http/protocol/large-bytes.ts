import type { DescField, DescMessage, MessageShape } from '@bufbuild/protobuf';
import { reflect } from '@bufbuild/protobuf/reflect';
import { EnvdError } from '../../../base/errors.ts';

/** protobuf-es decodes fields with fewer characters. */
const MIN_CHARACTERS = 64 * 1024;

/** The content of a `bytes` field, and the fields that lead to it. */
interface Taken {
  readonly path: readonly DescField[];
  readonly field: DescField;
  readonly bytes: Buffer;
}

/**
 * Decodes long base64 values of `bytes` fields and takes them out of `json`, the parsed text of a message. Node's native decoder
 * is much faster than that of protobuf-es. Throws `invalid_argument` for a value that is not base64.
 */
export function takeLargeBytes(schema: DescMessage, json: unknown, path: readonly DescField[] = []): Taken[] {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return [];
  const members: Record<string, unknown> = Object.assign(json);
  return schema.fields.flatMap((field): Taken[] => {
    const name = field.jsonName in members ? field.jsonName : field.name;
    const value = members[name];
    if (field.fieldKind === 'message') return takeLargeBytes(field.message, value, [...path, field]);
    if (typeof value !== 'string' || value.length < MIN_CHARACTERS || !isBytes(field)) return [];
    members[name] = '';
    return [{ path, field, bytes: decode(value, field) }];
  });
}

/** Puts the decoded values into the message. */
export function putLargeBytes<Desc extends DescMessage>(
  schema: Desc,
  message: MessageShape<Desc>,
  taken: readonly Taken[],
): void {
  for (const { path, field, bytes } of taken) {
    let target = reflect(schema, message);
    for (const step of path) if (step.fieldKind === 'message') target = target.get(step);
    target.set(field, bytes);
  }
}

function isBytes(field: DescField): boolean {
  return field.fieldKind === 'scalar' && field.scalar === 12; // ScalarType.BYTES
}

/** Decodes base64 in the standard and the URL-safe alphabet, as the JSON mapping of protobuf requires. */
function decode(text: string, { name }: DescField): Buffer {
  const bytes = Buffer.from(text, 'base64');
  const length = text.endsWith('==') ? text.length - 2 : text.endsWith('=') ? text.length - 1 : text.length;
  // Node skips characters that are not base64, so the length of the result shows whether there were any.
  if (length % 4 !== 1 && bytes.length === Math.floor((length * 3) / 4)) return bytes;
  throw new EnvdError('invalid_argument', `cannot decode field ${name} from JSON: invalid base64 string`);
}
