import type { BigIntStats } from 'node:fs';

/** Returns a text by which a file and its content are recognized: device, inode, size and modification time. */
export function versionText({ dev, ino, size, mtimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs].join(' ');
}
