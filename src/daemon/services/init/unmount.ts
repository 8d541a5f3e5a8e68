import { closeSync, constants } from 'node:fs';
import process from 'node:process';
import { EnvdError } from '../../../base/errors.ts';
import { PathHandle } from '../../linux/files/place.ts';
import { laneOf } from '../../linux/lanes/lane.ts';
import { type Lanes, MAX_MOUNTS } from '../../linux/lanes/lanes.ts';
import { pathBuffer } from '../../linux/paths/byte-path.ts';
import { type Mount, mountIdOf, readMounts } from '../../linux/paths/mounts.ts';
import { O_PATH } from '../../linux/paths/open-flags.ts';
import { native } from '../../linux/system/native.ts';

/** The number of attempts. The parents of the mount point may belong to users, who can exchange them at any time. */
const MOST_TRIES = 32;

/** Returns the mount as it is now, or undefined when it is gone. */
export function findMount({ id, content }: Mount): Mount | undefined {
  return readMounts().find((mount) => mount.id === id && mount.content === content);
}

/**
 * Unmounts one mount, wherever it was moved to, and nothing else: `detach` gets a link in /proc to the root of the mount,
 * which is held open and was checked to be on that mount. No server is asked. Throws `unavailable` when the root cannot be
 * reached.
 */
export async function unmount(
  mount: Mount,
  lanes: Lanes,
  detach: (target: string) => Promise<void>,
): Promise<void> {
  let cause: unknown;
  for (let tries = 0; tries < MOST_TRIES; tries++) {
    const now = findMount(mount);
    if (!now) return;
    const ids = withThoseOn(now);
    const root = await openRoot(now, ids, lanes).catch((error: unknown) => {
      cause = error;
      return null;
    });
    if (root === null) continue;
    try {
      // A mount on top of this one is unmounted first, because it would be detached with it anyway.
      if (ids.includes(mountIdOf(root))) await detach(`/proc/${process.pid}/fd/${root}`);
    } finally {
      closeSync(root);
    }
  }
  if (findMount(mount)) throw new EnvdError('unavailable', 'the mount point cannot be reached', { cause });
}

/** Returns the ids of the mount and of those on it, at most as many as a lane takes. */
function withThoseOn({ id }: Mount): number[] {
  const ids = [id];
  // A mount is listed after the one that it is mounted on, unless that one was moved later.
  for (const mount of readMounts()) if (ids.includes(mount.parent)) ids.push(mount.id);
  return ids.slice(0, MAX_MOUNTS);
}

/** Opens the root of the topmost mount. O_PATH asks nothing of its server, so no lane has to wait for that. */
async function openRoot({ path }: Mount, mounts: readonly number[], lanes: Lanes): Promise<number> {
  const slash = path.lastIndexOf('/');
  using place = await PathHandle.open(pathBuffer(path.slice(0, slash) || '/'), false, lanes);
  await using parent = await place.openFile(O_PATH | constants.O_DIRECTORY);
  const name = pathBuffer(path.slice(slash + 1));
  const open = () =>
    native.openAt(parent.fd, name, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW, null);
  return await parent.run(open, { discard: closeSync }, { ...laneOf(path), mounts });
}
