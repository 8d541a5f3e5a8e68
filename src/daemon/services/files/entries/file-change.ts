import type { BigIntStats } from 'node:fs';
import { tellableTime } from './times.ts';

/** Identifies the content of a file. */
export interface FileVersion {
  /** The size is in bytes. */
  readonly size: number;
  readonly inode: bigint;
  readonly modifiedNs: bigint;
}

/** Returns the strong validator of a file (RFC 9110, section 8.8.1), without quotes. */
export function tagOf({ modifiedNs, size, inode }: FileVersion): string {
  return [modifiedNs, size, inode].map((number) => number.toString(36)).join('-');
}

/** Returns the modification time that clients are told, in whole milliseconds. */
export function modifiedOf({ modifiedNs }: FileVersion): Date {
  return new Date(Number(tellableTime(modifiedNs) / 1_000_000n));
}

export function versionOf({ size, ino, mtimeNs }: BigIntStats): FileVersion {
  return { size: Number(size), inode: ino, modifiedNs: mtimeNs };
}

/** Describes what an upload does to the file at its path. */
export interface FileChange {
  /** The content replaces the `whole`, is added at the `end`, or is written from this byte on. */
  readonly placement: 'whole' | 'end' | number;
  /** Permission bits to set. Null keeps those of the file, or those of a new file. */
  readonly mode: number | null;
  /**
   * Throws unless the file is the one that the client expects. `version` is null when the file is missing. If the
   * function is null, any file is right.
   */
  readonly assertExpected: ((version: FileVersion | null) => void) | null;
}

/** An upload makes this change unless its client wants another. */
export const REPLACE: FileChange = { placement: 'whole', mode: null, assertExpected: null };
