import type { BigIntStats } from 'node:fs';
import { constants, copyFile, link, lstat, mkdir, readdir, readlink, symlink } from 'node:fs/promises';
import { EnvdError } from '../../../base/errors.ts';
import { copyAttributes } from '../../os/trees.ts';

const SLASH = Buffer.from('/');

/** Files of the tree that have several names, by device and inode: where the first of them has been copied to. */
type Copied = Map<string, Buffer>;

/**
 * Copies what is at `source`, with everything below it, to `target`, where nothing may be: content, owners, modes,
 * extended attributes, times, links as links, names of one file as names of one file.
 * Throws `failed_precondition` for what has no content to copy: fifos, sockets, devices.
 */
export function copyTree(source: string, target: string): Promise<void> {
  return copy(Buffer.from(source), Buffer.from(target), new Map());
}

async function copy(source: Buffer, target: Buffer, copied: Copied): Promise<void> {
  const status = await lstat(source, { bigint: true });
  const key = `${status.dev}:${status.ino}`;
  const first = copied.get(key);
  if (first) return link(first, target);
  if (status.nlink > 1n && !status.isDirectory()) copied.set(key, target);

  await copyContent(source, target, status, copied);
  // Last: what is put into a directory changes its times.
  await copyAttributes(source, target);
}

async function copyContent(
  source: Buffer,
  target: Buffer,
  status: BigIntStats,
  copied: Copied,
): Promise<void> {
  if (status.isFile()) {
    await copyFile(source, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
  } else if (status.isSymbolicLink()) {
    await symlink(await readlink(source, 'buffer'), target);
  } else if (status.isDirectory()) {
    await mkdir(target, { mode: 0o700 });
    for (const name of await readdir(source, 'buffer')) {
      await copy(Buffer.concat([source, SLASH, name]), Buffer.concat([target, SLASH, name]), copied);
    }
  } else {
    const message = `cannot move a fifo, socket or device to another file system: '${source}'`;
    throw new EnvdError('failed_precondition', message);
  }
}
