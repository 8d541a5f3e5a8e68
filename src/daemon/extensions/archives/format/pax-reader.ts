import type { Attribute } from '../../../linux/files/entries.ts';
import type { Refuse } from './header-reader.ts';

/** The length of a record has at most this many digits, because headers have at most some MiB. */
const MAX_DIGITS = 8;

/** The extended headers of one member have at most this many records, because each member copies those for all. */
const MAX_RECORDS = 2048;

/** Maps keys of extended headers to values. Both are bytes, one per character. A later record replaces earlier ones. */
export type PaxRecords = Map<string, string>;

/** Decodes the body of an extended header into `records`. Source: pax(1), "pax Extended Header". */
export function readPax(body: Buffer, records: PaxRecords, refuse: Refuse): void {
  let left = MAX_RECORDS - records.size;
  for (let at = 0; at < body.length; ) {
    if (--left < 0) refuse(`extended headers have more than ${MAX_RECORDS} records`);
    const blank = body.indexOf(0x20, at);
    const digits = blank > at + MAX_DIGITS ? '' : body.toString('latin1', at, Math.max(blank, at));
    const end = at + (/^\d+$/.test(digits) ? Number(digits) : 0);
    const equals = body.indexOf(0x3d, blank);
    if (equals < 0 || equals >= end || end > body.length || body[end - 1] !== 0x0a)
      refuse('a record of the extended header is malformed');
    records.set(body.toString('latin1', blank + 1, equals), body.toString('latin1', equals + 1, end - 1));
    at = end;
  }
}

/** Returns the number of a record, which has decimal digits, or null if there is none. */
export function paxNumber(records: PaxRecords, key: string, refuse: Refuse): number | null {
  const text = records.get(key);
  if (text === undefined || text === '') return null;
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(value) ? value : refuse(`${key} of the extended header is no usable number`);
}

/** Holds seconds since the epoch, and nanoseconds, which count forwards. */
interface Time {
  readonly seconds: number;
  readonly nanoseconds: number;
}

/** Returns nanoseconds since the epoch. */
export function timeOf({ seconds, nanoseconds }: Time): bigint {
  return BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds);
}

/** Returns the modification time, or null. Digits beyond nanoseconds are ignored. */
export function paxTime(records: PaxRecords, refuse: Refuse): Time | null {
  const text = records.get('mtime');
  if (text === undefined || text === '') return null;
  const [, sign = '', whole = '', fraction = ''] = /^(-?)(\d{1,15})(?:\.(\d*))?$/.exec(text) ?? [];
  if (whole === '') return refuse('mtime of the extended header is no usable number');
  const nanoseconds = Number(fraction.slice(0, 9).padEnd(9, '0'));
  if (sign === '') return { seconds: Number(whole), nanoseconds };
  if (nanoseconds === 0) return { seconds: -Number(whole), nanoseconds };
  return { seconds: -Number(whole) - 1, nanoseconds: 1_000_000_000 - nanoseconds };
}

const ATTRIBUTE = 'SCHILY.xattr.';

/** Returns the extended attributes of users. All others are dropped, because they could grant rights. */
export function paxAttributes(records: PaxRecords): Attribute[] {
  const attributes: Attribute[] = [];
  for (const [key, value] of records) {
    if (!key.startsWith(`${ATTRIBUTE}user.`)) continue;
    const name = key.slice(ATTRIBUTE.length).replaceAll('%3D', '=').replaceAll('%25', '%');
    attributes.push({ name, value: Buffer.from(value, 'latin1') });
  }
  return attributes;
}
