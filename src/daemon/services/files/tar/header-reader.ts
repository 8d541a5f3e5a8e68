import type { BytePath } from '../../../os/byte-path.ts';
import { checksumOf } from './header-writer.ts';

/** What a header block of an archive says; see `Header`. */
export interface RawHeader {
  readonly type: string;
  readonly name: BytePath;
  readonly link: BytePath;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes that follow, without padding. */
  readonly size: number;
  readonly seconds: number;
  readonly device: readonly [number, number];
}

/** Reports what is wrong with a header; never returns. */
export type Refuse = (problem: string) => never;

/** Decodes a header of the formats v7, ustar, pax and GNU, tar(5). Null for the block of zeros that ends an archive. */
export function readHeader(block: Buffer, refuse: Refuse): RawHeader | null {
  const sum = checksumOf(block);
  const claimed = numberAt(block, 148, 8, refuse);
  if (sum === EMPTY_SUM && block.every((byte) => byte === 0)) return null;
  if (claimed !== sum && claimed !== signedSum(block, sum)) refuse('checksum of the header is wrong');
  const isPosix = block.toString('latin1', 257, 263) === 'ustar\0';
  const prefix = isPosix ? textAt(block, 345, 155) : '';
  const name = textAt(block, 0, 100);
  return {
    type: block.toString('latin1', 156, 157),
    name: prefix === '' ? name : `${prefix}/${name}`,
    link: textAt(block, 157, 100),
    mode: numberAt(block, 100, 8, refuse) & 0o7777,
    uid: positive(numberAt(block, 108, 8, refuse), refuse),
    gid: positive(numberAt(block, 116, 8, refuse), refuse),
    size: positive(numberAt(block, 124, 12, refuse), refuse),
    seconds: numberAt(block, 136, 12, refuse),
    device: [numberAt(block, 329, 8, refuse), numberAt(block, 337, 8, refuse)],
  };
}

const EMPTY_SUM = 8 * 0x20;

/** Old implementations add bytes as signed numbers. */
function signedSum(block: Buffer, sum: number): number {
  return block.reduce(
    (signed, byte, at) => (byte > 127 && (at < 148 || at > 155) ? signed - 256 : signed),
    sum,
  );
}

function positive(value: number, refuse: Refuse): number {
  return value < 0 ? refuse('a number in the header is negative') : value;
}

/** Text up to the first NUL. */
export function textAt(block: Buffer, at: number, length: number): BytePath {
  const end = block.indexOf(0, at);
  return block.toString('latin1', at, end < 0 ? at + length : Math.min(end, at + length));
}

/**
 * A number: octal digits, with blanks before and a blank or NUL behind; or, if the first byte has its highest bit set,
 * the rest in binary, big-endian, two's complement. An empty field is 0.
 */
export function numberAt(block: Buffer, at: number, length: number, refuse: Refuse): number {
  if ((block[at] ?? 0) & 0x80) return binaryAt(block, at, length, refuse);
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

function binaryAt(block: Buffer, at: number, length: number, refuse: Refuse): number {
  const digits = BigInt(`0x${block.toString('hex', at, at + length)}`);
  // The highest bit marks the format, the next one is the sign.
  const value = BigInt.asIntN(length * 8 - 1, digits);
  if (value > Number.MAX_SAFE_INTEGER || value < Number.MIN_SAFE_INTEGER)
    refuse('a number in the header is too large');
  return Number(value);
}
