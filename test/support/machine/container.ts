import { chmodSync, chownSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { needs } from './needs.ts';
import { scratch } from './scratch.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const NODE = relative(ROOT, process.execPath);

export interface Container {
  /** The command of a program of this clone in the container. */
  command(program: string): [string, ...string[]];
  /** The only directory that can be written to. It belongs to the container's user. */
  readonly directory: string;
}

/** What a container shows of the cgroups: nothing, or a hierarchy that cannot be written to. */
export type CgroupsShown = 'hidden' | 'read-only';

/**
 * A container of a strict platform: its user, root or another one, has no capabilities and can get none, and everything but
 * one directory is read-only.
 */
export function strictContainer(uid: number, cgroups: CgroupsShown): Container {
  needs('mounts');
  const [place, directory] = [scratch(), scratch()];
  chmodSync(place, 0o755);
  chownSync(directory, uid, uid);
  const hierarchy = {
    hidden: 'mount -t tmpfs -o ro none /sys/fs/cgroup',
    'read-only': 'mount --bind /sys/fs/cgroup /sys/fs/cgroup; mount -o remount,bind,ro /sys/fs/cgroup',
  }[cgroups];
  const ids = uid === 0 ? '' : `--reuid=${uid} --regid=${uid} --clear-groups`;
  const drop = `setpriv ${ids} --inh-caps=-all --bounding-set=-all --no-new-privs`;
  const script = `set -e
    mount --bind '${ROOT}' '${place}'; mount -o remount,bind,ro '${place}'
    mount --bind '${directory}' '${directory}'
    ${hierarchy}
    for mount in /run /tmp /var /etc /; do ! mountpoint -q $mount || mount -o remount,bind,ro $mount; done
    cd '${place}'
    exec ${drop} "$@"`;
  const before = ['unshare', '--mount', 'sh', '-c', script, 'sh', `./${NODE}`] as const;
  return { directory, command: (program) => [...before, `./${program}`] };
}
