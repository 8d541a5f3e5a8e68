// This file finds the interpreter that execve(2) needs for a file. A script names it in its first line, and a dynamic
// program in its headers.
import { constants } from 'node:fs';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { PathHandle } from '../files/place.ts';
import { type Lanes, NoAnswer } from '../lanes/lanes.ts';

/** This many bytes of a file are read: its first line, or the headers of a program and its loader's name. */
const HEAD_BYTES = 4096;
/** The kernel reads this much of a first line. Source: BINPRM_BUF_SIZE, linux/binfmts.h. */
const LINE_BYTES = 256;

/** Describes the interpreter of a file that cannot be executed. Returns null if it has none or cannot be read. */
export async function describeInterpreter(file: string, lanes: Lanes): Promise<string | null> {
  try {
    using place = await PathHandle.open(file, true, lanes);
    await using opened = await place.openFile(constants.O_RDONLY | constants.O_NONBLOCK);
    const head = Buffer.alloc(HEAD_BYTES);
    const start = head.subarray(0, await opened.read(head, HEAD_BYTES, 0));
    const line = firstLine(start);
    if (line !== null) return `it begins with '${line}'`;
    const loader = loaderOf(start);
    return loader === null ? null : `its loader is '${loader}'`;
  } catch (error) {
    if (isSystemError(error) || error instanceof NoAnswer || error instanceof EnvdError) return null;
    throw error;
  }
}

/** Returns the first line of a script, with escapes for `\r` and other invisible characters, or else null. */
function firstLine(start: Buffer): string | null {
  if (start.toString('latin1', 0, 2) !== '#!') return null;
  const [line = ''] = start.toString('utf8', 0, LINE_BYTES).split('\n', 1);
  return line.replace(/[\p{Cc}\p{Cf}]/gu, (character) => JSON.stringify(character).slice(1, -1));
}

/** Offsets in the headers of ELF for 32 and 64 bits. Source: elf(5). */
const ELF = {
  1: { table: 0x1c, size: 0x2a, count: 0x2c, offset: 4, length: 16 },
  2: { table: 0x20, size: 0x36, count: 0x38, offset: 8, length: 32 },
} as const;
const PT_INTERP = 3;

/** Returns the loader of a program of this byte order, or null if it has none or `start` does not have the name. */
function loaderOf(start: Buffer): string | null {
  if (start.length < HEAD_BYTES || start.toString('latin1', 0, 4) !== '\x7fELF') return null;
  const bits = start[4];
  if ((bits !== 1 && bits !== 2) || start[5] !== 1) return null;
  const at = ELF[bits];
  // The 64-bit numbers are small here, so their lower half is enough.
  const table = start.readUInt32LE(at.table);
  const size = start.readUInt16LE(at.size);
  const count = start.readUInt16LE(at.count);
  for (
    let entry = table, left = count;
    left > 0 && entry + at.length + 4 <= HEAD_BYTES;
    entry += size, left--
  ) {
    if (start.readUInt32LE(entry) !== PT_INTERP) continue;
    const from = start.readUInt32LE(entry + at.offset);
    const name = start.toString('utf8', from, from + start.readUInt32LE(entry + at.length));
    return name.split('\0', 1)[0] || null;
  }
  return null;
}
