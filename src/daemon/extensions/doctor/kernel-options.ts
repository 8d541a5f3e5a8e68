import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { findCgroupMount } from '../../linux/cgroups/cgroup-mounts.ts';
import { readListeningSockets } from '../../linux/network/listening-sockets.ts';

/**
 * Returns the options that the kernel seems to be built without, of those that the daemon has a use for. A container that hides
 * parts of /proc, /sys and its cgroup makes options seem to be missing.
 */
export async function missingKernelOptions(): Promise<readonly string[]> {
  const controllers = knownControllers();
  const readsSockets = await readListeningSockets('127.0.0.1').then(
    () => true,
    () => false,
  );
  const found: readonly (readonly [isThere: boolean, options: readonly string[]])[] = [
    [contentOf('/proc/filesystems').includes('cgroup2'), ['CONFIG_CGROUPS']],
    [controllers.has('memory'), ['CONFIG_MEMCG']],
    [controllers.has('pids'), ['CONFIG_CGROUP_PIDS']],
    [
      !existsSync('/sys/kernel/mm') || existsSync('/sys/kernel/mm/transparent_hugepage'),
      ['CONFIG_TRANSPARENT_HUGEPAGE'],
    ],
    [existsSync('/proc/self/pagemap'), ['CONFIG_PROC_PAGE_MONITOR']],
    [readsSockets, ['CONFIG_INET_DIAG', 'CONFIG_INET_TCP_DIAG']],
  ];
  return found.flatMap(([isThere, options]) => (isThere ? [] : options));
}

/** Returns the controllers of cgroup v1 and v2. Newer kernels list those of v2 only in the hierarchy itself. */
function knownControllers(): ReadonlySet<string> {
  const mount = existsSync('/proc/self/mountinfo') ? findCgroupMount() : null;
  const v1 = contentOf('/proc/cgroups').matchAll(/^(\w+)\t/gm);
  const v2 = mount === null ? '' : contentOf(join(mount, 'cgroup.controllers'));
  return new Set([...Array.from(v1, ([, name = '']) => name), ...v2.trim().split(' ')]);
}

function contentOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
