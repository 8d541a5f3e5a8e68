import { constants } from 'node:fs';
import { readlink } from 'node:fs/promises';
import { EnvdError } from '../../../base/errors.ts';
import { type BytePath, bytePath, displayPath } from '../../os/byte-path.ts';
import { about } from '../../os/errno.ts';
import type { Lanes } from '../../os/lanes.ts';
import { isOnNetwork, type Mount, mountOf, mountsBelow, readMounts } from '../../os/mounts.ts';
import { Place } from '../../os/place.ts';

/** A directory that can be watched. */
export interface WatchRoot {
  /** Without symbolic links. */
  readonly path: BytePath;
  /** The owner of a user's link that was followed, whose permissions apply; null: the daemon's. */
  readonly owner: number | null;
  /** The mount point it is on. */
  readonly mount: BytePath;
  readonly isNetwork: boolean;
  /** Mount points below it on which inotify does not report all changes. */
  readonly networkMounts: readonly BytePath[];
  readonly pseudoMounts: readonly BytePath[];
}

/**
 * Finds the directory at `path`, following links. Throws `not_found`, `invalid_argument` (no directory, a network file
 * system without permission), `deadline_exceeded` (its file system does not answer).
 */
export async function findRoot(
  path: string,
  { recursive, allowNetworkMounts }: { readonly recursive: boolean; readonly allowNetworkMounts: boolean },
  lanes: Lanes,
): Promise<WatchRoot> {
  const mounts = readMounts();
  const allow = (isNetwork: boolean, where: BytePath) => {
    if (isNetwork && !allowNetworkMounts) throw refusal(where);
  };
  // Checked against the mount table first, so that a refused file system is not accessed.
  const nominal = mountOf(mounts, bytePath(path));
  allow(nominal?.kind === 'network', bytePath(path));
  const { resolved, owner, isNetwork } = await about(path, () => resolve(path, lanes));
  const actual = mountOf(mounts, resolved);
  allow(isNetwork, bytePath(path));
  const below = recursive && !isNetwork ? mountsBelow(mounts, resolved) : [];
  const pathsOf = (kind: Mount['kind']) =>
    below.filter((mount) => mount.kind === kind).map((mount) => mount.path);
  const networkMounts = pathsOf('network');
  for (const mount of networkMounts) allow(true, mount);
  return {
    path: resolved,
    owner,
    mount: actual?.path ?? '/',
    isNetwork,
    networkMounts,
    pseudoMounts: pathsOf('pseudo'),
  };
}

/** With the rights of a link's owner, where a user's link was followed: he must be able to list the directory. */
async function resolve(
  path: string,
  lanes: Lanes,
): Promise<{ resolved: BytePath; owner: number | null; isNetwork: boolean }> {
  using place = await Place.open(path, true, lanes);
  const status = await place.status();
  if (!status) throw new EnvdError('not_found', `path not found: '${path}'`);
  if (!status.isDirectory()) throw new EnvdError('invalid_argument', `path is not a directory: '${path}'`);
  await using directory = await place.openFile(constants.O_RDONLY | constants.O_DIRECTORY);
  const name: BytePath = `/proc/self/fd/${directory.fd}`;
  const isNetwork = await directory.run(() => isOnNetwork(name));
  return { resolved: bytePath(await readlink(name, 'buffer')), owner: place.owner, isNetwork };
}

function refusal(path: BytePath): EnvdError {
  return new EnvdError('invalid_argument', `cannot watch path on network filesystem: '${displayPath(path)}'`);
}
