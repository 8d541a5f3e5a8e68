import { native } from './native.ts';

/**
 * Removes what is at `path` and everything below it, links themselves and never what they lead to; nothing there
 * is success. Safe against those who change the tree meanwhile, and without a limit on its depth.
 * Throws unlink(2)'s and rmdir(2)'s errors.
 */
export async function removeTree(path: string): Promise<void> {
  await native.removeTree(path);
}

/**
 * Gives `target` the owner, mode, extended attributes and times of `source`, without following either. What the
 * target's file system has no place for is lost.
 */
export async function copyAttributes(source: Buffer, target: Buffer): Promise<void> {
  await native.copyAttributes(source, target);
}
