import type { BytePath } from '../../../linux/paths/byte-path.ts';
import { checksumOf, FIELDS, type Field } from './header-writer.ts';

/** What a header block of an archive says; see `Header`. */
export interface RawHeader {
  readonly type: string;
  readonly name: BytePath;
  readonly link: BytePath;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** This many bytes follow, not counting padding. */
  readonly size: number;
  readonly seconds: number;
  readonly device: readonly [number, number];
}

/** Reports what is wrong with a header, and never returns. */
export type Refuse = (problem: string) => never;

/** Decodes a header of the formats v7, ustar, pax and GNU, tar(5). The block of zeros that ends an archive is null. */
export function readHeader(block: Buffer, refuse: Refuse): RawHeader | null {
  const sum = checksumOf(block);
  const claimed = numberAt(block, FIELDS.checksum, refuse);
  if (sum === EMPTY_SUM && block.every((byte) => byte === 0)) return null;
  if (claimed !== sum && claimed !== signedSum(block, sum)) refuse('checksum of the header is wrong');
  const isPosix = textAt(block, FIELDS.magic) === 'ustar';
  const prefix = isPosix ? textAt(block, FIELDS.prefix) : '';
  const name = textAt(block, FIELDS.name);
  return {
    type: String.fromCharCode(block[FIELDS.type[0]] ?? 0),
    name: prefix === '' ? name : `${prefix}/${name}`,
    link: textAt(block, FIELDS.link),
    mode: numberAt(block, FIELDS.mode, refuse) & 0o7777,
    uid: positive(numberAt(block, FIELDS.uid, refuse), refuse),
    gid: positive(numberAt(block, FIELDS.gid, refuse), refuse),
    size: positive(numberAt(block, FIELDS.size, refuse), refuse),
    seconds: numberAt(block, FIELDS.mtime, refuse),
    device: [numberAt(block, FIELDS.major, refuse), numberAt(block, FIELDS.minor, refuse)],
  };
}

const EMPTY_SUM = 8 * 0x20;

/** Returns the checksum of old implementations, which add bytes as signed numbers. */
function signedSum(block: Buffer, sum: number): number {
  return block.reduce(
    (signed, byte, at) => (byte > 127 && (at < 148 || at > 155) ? signed - 256 : signed),
    sum,
  );
}

function positive(value: number, refuse: Refuse): number {
  return value < 0 ? refuse('a number in the header is negative') : value;
}

/** Returns the text up to the first NUL. */
export function textAt(block: Buffer, [at, length]: Field): BytePath {
  const end = block.indexOf(0, at);
  return block.toString('latin1', at, end < 0 ? at + length : Math.min(end, at + length));
}

/**
 * Returns a number. It is written in octal digits, with blanks before and a blank or NUL behind. If the first byte has
 * its highest bit set, the rest is binary, big-endian, in two's complement. An empty field is 0.
 */
function numberAt(block: Buffer, field: Field, refuse: Refuse): number {
  const [at, length] = field;
  if ((block[at] ?? 0) & 0x80) return binaryAt(block, field, refuse);
  let value = 0;
  let digits = 0;
  for (let index = at; index < at + length; index++) {
    const byte = block[index] ?? 0;
    if (byte >= 0x30 && byte <= 0x37) {
      value = value * 8 + byte - 0x30;
      digits++;
    } else if (byte !== 0x20 && byte !== 0) refuse('a number in the header is malformed');
    else if (digits > 0 || byte === 0) break;
  }
  return value;
}

function binaryAt(block: Buffer, [at, length]: Field, refuse: Refuse): number {
  const digits = BigInt(`0x${block.toString('hex', at, at + length)}`);
  // The highest bit marks the format, and the next one is the sign.
  const value = BigInt.asIntN(length * 8 - 1, digits);
  if (value > Number.MAX_SAFE_INTEGER || value < Number.MIN_SAFE_INTEGER)
    refuse('a number in the header is too large');
  return Number(value);
}
