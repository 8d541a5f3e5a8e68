import type { BigIntStats } from 'node:fs';

/** What identifies the content of a file. */
export interface FileVersion {
  /** In bytes. */
  readonly size: number;
  readonly inode: bigint;
  /** Nanoseconds since the epoch. */
  readonly modifiedNs: bigint;
}

/** The strong validator of a file (RFC 9110, section 8.8.1), without quotes. */
export function tagOf({ modifiedNs, size, inode }: FileVersion): string {
  return [modifiedNs, size, inode].map((number) => number.toString(36)).join('-');
}

/** The modification time, in whole milliseconds. */
export function modifiedOf({ modifiedNs }: FileVersion): Date {
  return new Date(Number(modifiedNs / 1_000_000n));
}

export function versionOf({ size, ino, mtimeNs }: BigIntStats): FileVersion {
  return { size: Number(size), inode: ino, modifiedNs: mtimeNs };
}

/** What an upload does to the file at its path. */
export interface FileChange {
  /** The content replaces the `whole`, is added at the `end`, or is written from this byte on. */
  readonly placement: 'whole' | 'end' | number;
  /** Permission bits to set; null: as they are, or those of a new file. */
  readonly mode: number | null;
  /** Throws unless the file, null when it is missing, is the one that the client expects; null: any is. */
  readonly assertExpected: ((version: FileVersion | null) => void) | null;
}

/** The change that an upload makes unless its client wants another. */
export const REPLACE: FileChange = { placement: 'whole', mode: null, assertExpected: null };
