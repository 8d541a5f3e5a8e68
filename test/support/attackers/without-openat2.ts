import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { scratch } from '../machine/scratch.ts';

/** Builds a program that runs another one, its first argument, for which openat2(2) does not exist. */
export function withoutOpenat2(): string {
  const program = join(scratch(), 'without');
  const source = fileURLToPath(new URL('without-openat2.c', import.meta.url));
  execFileSync('cc', ['-o', program, source]);
  return program;
}
