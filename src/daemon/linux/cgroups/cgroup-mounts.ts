import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { unescaped } from '../paths/mounts.ts';
import { Cgroup } from './cgroup2.ts';

/**
 * Returns the mount point of cgroup v2, or null. Some hosts mount it at /sys/fs/cgroup/unified. A mount of the whole
 * hierarchy is preferred to a mount of a subtree. Source: proc_pid_mountinfo(5).
 */
export function findCgroupMount(mountinfo = '/proc/self/mountinfo'): string | null {
  const mounts = cgroupMounts(mountinfo);
  return (mounts.find(({ root }) => root === '/') ?? mounts[0])?.path ?? null;
}

/**
 * Returns the daemon's own cgroup below `mount`, or the cgroup at `mount` itself when the daemon's is outside of that mount.
 */
export function ownCgroup(
  mount: string,
  mountinfo = '/proc/self/mountinfo',
  self = '/proc/self/cgroup',
): Cgroup {
  const own = /^0::(\/.*)$/m.exec(readFileSync(self, 'utf8'))?.[1] ?? '/';
  const root = cgroupMounts(mountinfo).find(({ path }) => path === mount)?.root ?? '/';
  const prefix = root === '/' ? '/' : `${root}/`;
  return new Cgroup(
    own.startsWith(prefix) && !own.startsWith('/..') ? join(mount, own.slice(prefix.length)) : mount,
  );
}

/** Parses `36 35 98:0 /root /mount/point options … - type source options`. */
function cgroupMounts(mountinfo: string): { root: string; path: string }[] {
  const mounts = readFileSync(mountinfo, 'utf8').matchAll(/^\d+ \d+ \S+ (\S+) (\S+) .* - cgroup2 /gm);
  return Array.from(mounts, ([, root = '/', path = '/']) => ({
    root: unescaped(root),
    path: unescaped(path),
  }));
}
