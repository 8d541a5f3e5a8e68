import { readFileSync } from 'node:fs';

/**
 * Returns a UUID, version 4, from the kernel's random generator. All clones of a snapshot would get the same ids from Node's
 * generators, whose state is in the memory of this program; `reseedRandom` changes the kernel's after a resume. Throws EMFILE
 * without free descriptors. Source: random(4).
 */
export function uniqueId(): string {
  return readFileSync('/proc/sys/kernel/random/uuid', 'latin1').trimEnd();
}
