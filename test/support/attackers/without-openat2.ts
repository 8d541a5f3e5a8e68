import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { scratch } from '../machine/scratch.ts';

/** Builds a program that runs another one, its first argument, for which openat2(2) does not exist. */
export function withoutOpenat2(): string {
  return without('openat2');
}

/** The same for clone3(2), which engines of containers hide from programs without rights. */
export function withoutClone3(): string {
  return without('clone3');
}

function without(call: string): string {
  const program = join(scratch(), 'without');
  const source = fileURLToPath(new URL('without-openat2.c', import.meta.url));
  execFileSync('cc', [`-DHIDDEN=SYS_${call}`, '-o', program, source]);
  return program;
}
