import { readFileSync } from 'node:fs';

/**
 * A UUID, version 4, from the kernel's random generator. Node's generators keep their state in the memory of this program, so
 * that all clones of a snapshot would get the same ids from them; the kernel's is reseeded after a resume, see `reseedRandom`.
 * Throws `EMFILE` without free descriptors. Source: random(4).
 */
export function uniqueId(): string {
  return readFileSync('/proc/sys/kernel/random/uuid', 'latin1').trimEnd();
}
