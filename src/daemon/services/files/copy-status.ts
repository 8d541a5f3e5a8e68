import { constants } from 'node:fs';
import { lchown, open, symlink } from 'node:fs/promises';
import { isSystemError } from '../../../base/errors.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import { writeTimes } from '../../linux/files/times.ts';
import { copyAttributes } from '../../linux/files/xattr.ts';
import { both, type Lane } from '../../linux/lanes/lane.ts';
import { O_PATH } from '../../linux/paths/open-flags.ts';
import { native } from '../../linux/system/native.ts';

/** These flags open an entry of any kind, also a symbolic link. */
export const O_ENTRY = O_PATH | constants.O_NOFOLLOW;

/** This attribute holds file capabilities (capabilities(7)), which grant rights as set-id bits do. */
const CAPABILITIES = 'security.capability';

/**
 * Copies owner, mode, extended attributes and times from one open file or directory to another. It does not copy set-id
 * bits of files, nor attributes and owners that the target's file system does not support.
 */
export async function copyStatus(from: OpenFile, to: OpenFile): Promise<void> {
  const status = await from.exactStat();
  const { uid, gid, atimeNs, mtimeNs } = status;
  const isGiven = await unlessOwnerless(to.chown(Number(uid), Number(gid)));
  // Files lose their set-id bits, because the file system may have refused the owner. On a directory set-group-ID
  // grants no rights, but makes new entries inherit the group.
  await to.chmod(Number(status.mode) & (status.isDirectory() && isGiven ? 0o3777 : 0o1777));
  await copyAttributes(from, to, CAPABILITIES);
  await to.run(() => writeTimes(to.fd, atimeNs, mtimeNs));
}

/**
 * Creates a symbolic link at `path` with the text, owner and times of the open one. `path` must be in a directory that
 * only root can enter, and `lane` is the lane of that directory.
 */
export async function copyLink(link: OpenFile, path: Buffer, lane: Lane): Promise<void> {
  const { uid, gid, atimeNs, mtimeNs } = await link.exactStat();
  const text = await link.run(() => native.readLink(link.fd));
  const make = async () => {
    await symlink(text, path);
    await unlessOwnerless(lchown(path, Number(uid), Number(gid)));
    await using made = await open(path, O_ENTRY);
    await writeTimes(made.fd, atimeNs, mtimeNs);
  };
  await link.run(make, {}, both(link.lane, lane));
}

/** Returns false when the file system has no owners, or its server refuses to change them. */
async function unlessOwnerless(change: Promise<void>): Promise<boolean> {
  try {
    await change;
    return true;
  } catch (error) {
    if (isSystemError(error, 'EPERM', 'ENOTSUP')) return false;
    throw error;
  }
}
