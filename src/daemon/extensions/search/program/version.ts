import type { BigIntStats } from 'node:fs';

/** What the content of a file is known by. */
export function versionText({ dev, ino, size, mtimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs].join(' ');
}
