import { constants } from 'node:fs';
import { readlink } from 'node:fs/promises';
import { EnvdError } from '../../../base/errors.ts';
import { PathHandle } from '../../linux/files/place.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { type BytePath, bytePath, displayPath, pathBuffer } from '../../linux/paths/byte-path.ts';
import { isOnNetwork, type Mount, type MountTable, mountOf, mountsBelow } from '../../linux/paths/mounts.ts';
import { explaining } from '../../linux/system/errno.ts';

/** The directory that a watch begins at, and the mounts below it. */
export interface WatchRoot {
  /** The path after all symbolic links were followed. */
  readonly path: BytePath;
  /** The user whose link was followed and whose permissions apply; null when the daemon's permissions apply. */
  readonly owner: number | null;
  /** The mount point of the file system that the directory is on. */
  readonly mount: BytePath;
  readonly isNetwork: boolean;
  /** The network mounts below the directory, which are polled. */
  readonly networkMounts: readonly BytePath[];
  /** The mount points below the directory that are not watched. */
  readonly excluded: readonly BytePath[];
  /** All mounts of the guest at the time when the directory was found. */
  readonly mounts: readonly Mount[];
}

export interface RootOptions {
  readonly recursive: boolean;
  readonly allowNetworkMounts: boolean;
  readonly mounts: MountTable;
  readonly lanes: Lanes;
}

/**
 * Finds the directory at `path`, and follows links. Throws `not_found`, `invalid_argument` when the path is no directory or
 * on a network file system without permission, and `deadline_exceeded` when its file system does not answer.
 */
export async function findRoot(path: string, options: RootOptions): Promise<WatchRoot> {
  const root = await resolveRoot(bytePath(path), path, options);
  if (options.allowNetworkMounts) return root;
  for (const mount of root.networkMounts) throw refusal(mount);
  return root;
}

/**
 * Finds a root again after the mounts have changed. Network mounts that have appeared below it are excluded unless they are
 * allowed, because users of the guest can make them. Throws what `findRoot` throws.
 */
export async function findRootAgain({ path, owner }: WatchRoot, options: RootOptions): Promise<WatchRoot> {
  const shown = displayPath(path);
  const root = await resolveRoot(path, shown, options);
  if (root.path !== path) throw new EnvdError('not_found', `path not found: '${shown}'`);
  if (options.allowNetworkMounts) return { ...root, owner };
  return { ...root, owner, networkMounts: [], excluded: [...root.excluded, ...root.networkMounts] };
}

async function resolveRoot(
  path: BytePath,
  shown: string,
  { recursive, allowNetworkMounts, mounts: table, lanes }: RootOptions,
): Promise<WatchRoot> {
  const mounts = table.read();
  const allow = (isNetwork: boolean, where: BytePath) => {
    if (isNetwork && !allowNetworkMounts) throw refusal(where);
  };
  // The mount table is asked first, so that a file system that is refused is not accessed.
  const nominal = mountOf(mounts, path);
  allow(nominal?.kind === 'network', path);
  const { resolved, owner, isNetwork } = await explaining(shown, () => resolve(path, shown, lanes));
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

/** Follows links and opens the directory. Where a user's link was followed, the open fails unless that user may list it. */
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
