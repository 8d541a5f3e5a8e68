import { isUtf8 } from 'node:buffer';
import { type BytePath, pathBuffer } from '../../../linux/paths/byte-path.ts';
import { BLOCK, type BlockWriter } from './block-writer.ts';

/** Describes what a header of an archive says. Names are bytes. */
export interface Header {
  /** The type of tar(5) is `0` file, `1` hard link, `2` symbolic link, `3` and `4` device, `5` directory, or `6` fifo. */
  readonly type: string;
  readonly name: BytePath;
  /** The target of a link. It is empty for others. */
  readonly link: BytePath;
  /** The permission bits, with set-id and sticky bits. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** This many bytes follow the header. */
  readonly size: number;
  readonly seconds: number;
  readonly nanoseconds: number;
  /** The major and minor number of a device. It is null for others. */
  readonly device: readonly [number, number] | null;
}

/** A record of an extended header. Both parts are bytes, one character each. */
export type PaxRecord = readonly [key: string, value: string];

/** This gives the start and the length of the fields of a header, tar(5). */
export const FIELDS = {
  name: [0, 100],
  mode: [100, 8],
  uid: [108, 8],
  gid: [116, 8],
  size: [124, 12],
  mtime: [136, 12],
  checksum: [148, 8],
  type: [156, 1],
  link: [157, 100],
  magic: [257, 8],
  major: [329, 8],
  minor: [337, 8],
  prefix: [345, 155],
} as const;
export type Field = readonly [start: number, length: number];

const LONGEST_NAME = FIELDS.name[1];
/** The largest numbers in fields of 7 and 11 octal digits. */
const MAX_ID = 0o7777777;
const MAX_SIZE = 0o77777777777;
/** Programs that read archives refuse times with more digits. */
const MAX_SECONDS = 999_999_999_999_999;

/**
 * Writes the header of a member, after an extended header for `records` and for all that does not fit into its fields.
 * The formats are ustar and pax of POSIX.1-2017, pax(1).
 */
export function writeHeader(out: BlockWriter, header: Header, records: readonly PaxRecord[] = []): void {
  const extended = extensionsOf(header) + records.map(paxRecord).join('');
  if (extended !== '') {
    writeBlock(out, header, 'x', extended.length);
    out.bytes(pathBuffer(extended));
    out.pad();
  }
  writeBlock(out, header, header.type, header.size);
}

function extensionsOf({ name, link, uid, gid, size, seconds, nanoseconds }: Header): string {
  let records = '';
  if (nanoseconds > 0 || seconds < 0 || seconds > MAX_SIZE)
    records += paxRecord(['mtime', timeText(seconds, nanoseconds)]);
  if (uid > MAX_ID) records += paxRecord(['uid', String(uid)]);
  if (gid > MAX_ID) records += paxRecord(['gid', String(gid)]);
  if (size > MAX_SIZE) records += paxRecord(['size', String(size)]);
  const long = [name, link].filter((bytes) => bytes.length > LONGEST_NAME);
  // Names are UTF-8 unless this record says otherwise.
  if (!long.every(isText)) records += paxRecord(['hdrcharset', 'BINARY']);
  if (name.length > LONGEST_NAME) records += paxRecord(['path', name]);
  if (link.length > LONGEST_NAME) records += paxRecord(['linkpath', link]);
  return records;
}

function isText(bytes: BytePath): boolean {
  return isUtf8(pathBuffer(bytes));
}

/** Returns seconds with a decimal fraction. `nanoseconds` count forwards also before the epoch. */
function timeText(seconds: number, nanoseconds: number): string {
  const isBefore = seconds < 0 && nanoseconds > 0;
  const whole = isBefore ? seconds + 1 : seconds;
  const fraction = isBefore ? 1_000_000_000 - nanoseconds : nanoseconds;
  const sign = isBefore && whole === 0 ? '-' : '';
  const told = Math.min(Math.max(whole, -MAX_SECONDS), MAX_SECONDS);
  const digits = fraction > 0 ? `.${String(fraction).padStart(9, '0')}` : '';
  return sign + told + digits;
}

/** Returns `LENGTH KEY=VALUE\n`, where the length, in decimal digits, includes itself. */
function paxRecord([key, value]: PaxRecord): string {
  const rest = key.length + value.length + 3;
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length++;
  return `${length} ${key}=${value}\n`;
}

/** Writes a header block. Numbers that do not fit become 0 and names are cut, because an extended header has them. */
function writeBlock(out: BlockWriter, header: Header, type: string, size: number): void {
  const { uid, gid, seconds } = header;
  const block = out.block();
  block.write(header.name, ...FIELDS.name, 'latin1');
  writeOctal(block, FIELDS.mode, header.mode);
  writeOctal(block, FIELDS.uid, uid > MAX_ID ? 0 : uid);
  writeOctal(block, FIELDS.gid, gid > MAX_ID ? 0 : gid);
  writeOctal(block, FIELDS.size, size > MAX_SIZE ? 0 : size);
  writeOctal(block, FIELDS.mtime, seconds < 0 || seconds > MAX_SIZE ? 0 : seconds);
  block.write(type, ...FIELDS.type, 'latin1');
  if (header.link !== '') block.write(header.link, ...FIELDS.link, 'latin1');
  block.write('ustar\x0000', ...FIELDS.magic, 'latin1');
  if (header.device !== null) {
    writeOctal(block, FIELDS.major, header.device[0]);
    writeOctal(block, FIELDS.minor, header.device[1]);
  }
  // The checksum has six digits, NUL and a blank.
  const [start, length] = FIELDS.checksum;
  writeOctal(block, [start, length - 1], checksumOf(block));
  block[start + length - 1] = 0x20;
}

/** Writes digits with leading zeros. The last byte of the field stays NUL. */
function writeOctal(block: Buffer, [at, length]: Field, value: number): void {
  let rest = value;
  for (let index = at + length - 2; index >= at; index--) {
    block[index] = 0x30 + (rest % 8);
    rest = Math.floor(rest / 8);
  }
}

/** Returns the sum of all bytes of a header, with the field of the checksum taken as blanks. */
export function checksumOf(block: Buffer): number {
  const [start, length] = FIELDS.checksum;
  let sum = length * 0x20;
  for (let index = 0; index < start; index++) sum += block[index] ?? 0;
  for (let index = start + length; index < BLOCK; index++) sum += block[index] ?? 0;
  return sum;
}
