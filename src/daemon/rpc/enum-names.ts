import type { DescEnum, DescMessage } from '@bufbuild/protobuf';
import { EnvdError } from '../../base/errors.ts';

/** An unknown name is quoted up to this length. */
const MAX_QUOTED = 64;

/** The values of an enum, for an error that says what to send. */
export function choicesOf({ values }: DescEnum): string {
  const names = values.filter(({ number }) => number !== 0).map(({ name, number }) => `${name} (${number})`);
  return `${names.join(', ')} or a number`;
}

/**
 * Throws `invalid_argument` when a field of the message, not of those inside it, has the name of no value of its enum.
 * protobuf-es passes over such names together with unknown properties, as if nothing had been sent.
 */
export function refuseUnknownNames({ fields }: DescMessage, json: string): void {
  const enums = fields.filter((field) => field.fieldKind === 'enum');
  if (enums.length === 0) return;
  const members: Readonly<Record<string, unknown>> = JSON.parse(json);
  for (const field of enums) {
    const value = members[field.jsonName] ?? members[field.name];
    if (typeof value !== 'string' || field.enum.values.some(({ name }) => name === value)) continue;
    const quoted = value.length > MAX_QUOTED ? `${value.slice(0, MAX_QUOTED)}…` : value;
    const text = `unknown ${field.name} '${quoted}': use ${choicesOf(field.enum)}`;
    throw new EnvdError('invalid_argument', text);
  }
}
