import { constants } from 'node:fs';
import type { FullEntry } from '../../../linux/files/directory-reader.ts';
import type { Attribute } from '../../../linux/files/entries.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { Header, PaxRecord } from '../format/header-writer.ts';

/** Maps file types to type flags. Sockets have none, because archives cannot store them. */
export const TYPES: Readonly<Record<number, string>> = {
  [constants.S_IFREG]: '0',
  [constants.S_IFLNK]: '2',
  [constants.S_IFCHR]: '3',
  [constants.S_IFBLK]: '4',
  [constants.S_IFIFO]: '6',
};

/** Returns the header of an entry under its name in the archive. */
export function headerOfEntry(entry: FullEntry, name: BytePath, type: string, size: number): Header {
  const { link, uid, gid, seconds, nanoseconds } = entry;
  const device = type === '3' || type === '4' ? numbersOf(entry.nodeDevice) : null;
  return { type, name, link, mode: entry.mode & 0o7777, uid, gid, size, seconds, nanoseconds, device };
}

/** Returns the major and the minor number, makedev(3). */
function numbersOf(device: bigint): readonly [number, number] {
  const major = ((device >> 8n) & 0xfffn) | ((device >> 32n) & ~0xfffn);
  const minor = (device & 0xffn) | ((device >> 12n) & 0xffffff00n);
  return [Number(major), Number(minor)];
}

/** An archive stores the attributes of users, and capabilities. */
const STORED = /^user\.|^security\.capability$/;

/** Returns the records of extended attributes. */
export function recordsOf(attributes: readonly Attribute[]): PaxRecord[] {
  if (attributes.length === 0) return [];
  return attributes
    .filter(({ name }) => STORED.test(name))
    .map(({ name, value }) => [`SCHILY.xattr.${keyOf(name)}`, value.toString('latin1')]);
}

/** Escapes `=`, which ends the key, as GNU tar does. */
function keyOf(name: string): string {
  return name.replaceAll('%', '%25').replaceAll('=', '%3D');
}
