import { constants } from 'node:fs';
import { readlink } from 'node:fs/promises';
import { EnvdError } from '../../../base/errors.ts';
import { PathHandle } from '../../linux/files/place.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { type BytePath, bytePath, displayPath, pathBuffer } from '../../linux/paths/byte-path.ts';
import { isOnNetwork, type Mount, type MountTable, mountOf, mountsBelow } from '../../linux/paths/mounts.ts';
import { about } from '../../linux/system/errno.ts';

/** A directory that can be watched. */
export interface WatchRoot {
  /** Without symbolic links. */
  readonly path: BytePath;
  /** The owner of a user's link that was followed, whose permissions apply; null: the daemon's. */
  readonly owner: number | null;
  /** The mount point it is on. */
  readonly mount: BytePath;
  readonly isNetwork: boolean;
  /** Network mounts below it, which are polled. */
  readonly networkMounts: readonly BytePath[];
  /** Mount points below it that are not watched. */
  readonly excluded: readonly BytePath[];
  /** All mounts when it was found. */
  readonly mounts: readonly Mount[];
}

export interface RootOptions {
  readonly recursive: boolean;
  readonly allowNetworkMounts: boolean;
  readonly mounts: MountTable;
  readonly lanes: Lanes;
}

/**
 * Finds the directory at `path`, following links. Throws `not_found`, `invalid_argument` (no directory, a network file
 * system without permission), `deadline_exceeded` (its file system does not answer).
 */
export async function findRoot(path: string, options: RootOptions): Promise<WatchRoot> {
  const root = await lookAt(bytePath(path), path, options);
  if (options.allowNetworkMounts) return root;
  for (const mount of root.networkMounts) throw refusal(mount);
  return root;
}

/**
 * The directory at the path of a root that was found before, where mounts have changed. Network mounts that have appeared
 * below it are excluded unless they are allowed: users of the guest can make them. Throws as `findRoot`.
 */
export async function findRootAgain({ path, owner }: WatchRoot, options: RootOptions): Promise<WatchRoot> {
  const shown = displayPath(path);
  const root = await lookAt(path, shown, options);
  if (root.path !== path) throw new EnvdError('not_found', `path not found: '${shown}'`);
  if (options.allowNetworkMounts) return { ...root, owner };
  return { ...root, owner, networkMounts: [], excluded: [...root.excluded, ...root.networkMounts] };
}

async function lookAt(
  path: BytePath,
  shown: string,
  { recursive, allowNetworkMounts, mounts: table, lanes }: RootOptions,
): Promise<WatchRoot> {
  const mounts = table.read();
  const allow = (isNetwork: boolean, where: BytePath) => {
    if (isNetwork && !allowNetworkMounts) throw refusal(where);
  };
  // Checked against the mount table first, so that a refused file system is not accessed.
  const nominal = mountOf(mounts, path);
  allow(nominal?.kind === 'network', path);
  const { resolved, owner, isNetwork } = await about(shown, () => resolve(path, shown, lanes));
  const actual = mountOf(mounts, resolved);
  allow(isNetwork, path);
  const below = recursive && !isNetwork ? mountsBelow(mounts, resolved) : [];
  const pathsOf = (kind: Mount['kind']) =>
    below.filter((mount) => mount.kind === kind).map((mount) => mount.path);
  return {
    path: resolved,
    owner,
    mount: actual?.path ?? '/',
    isNetwork,
    networkMounts: pathsOf('network'),
    excluded: pathsOf('pseudo'),
    mounts,
  };
}

/** With the rights of a link's owner, where a user's link was followed: he must be able to list the directory. */
async function resolve(
  path: BytePath,
  shown: string,
  lanes: Lanes,
): Promise<{ resolved: BytePath; owner: number | null; isNetwork: boolean }> {
  using place = await PathHandle.open(pathBuffer(path), true, lanes);
  const status = await place.status();
  if (!status) throw new EnvdError('not_found', `path not found: '${shown}'`);
  if (!status.isDirectory()) throw new EnvdError('invalid_argument', `path is not a directory: '${shown}'`);
  await using directory = await place.openFile(constants.O_RDONLY | constants.O_DIRECTORY);
  const name: BytePath = `/proc/self/fd/${directory.fd}`;
  const isNetwork = await directory.run(() => isOnNetwork(name));
  return { resolved: bytePath(await readlink(name, 'buffer')), owner: place.owner, isNetwork };
}

function refusal(path: BytePath): EnvdError {
  return new EnvdError('invalid_argument', `cannot watch path on network filesystem: '${displayPath(path)}'`);
}
