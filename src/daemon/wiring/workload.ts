import { basename, join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Config } from '../config/config.ts';
import { findCgroupMount } from '../linux/cgroups/cgroup-mounts.ts';
import { type CgroupRoot, takeRoot, unlockRoot } from '../services/process/cgroups/cgroup-root.ts';
import { WorkloadCgroups, type WorkloadLimits } from '../services/process/cgroups/cgroups.ts';

/** The default cgroup root of the first daemon on this machine, and those of others beside it. */
const DEFAULT_ROOTS = ['envd', 'envd-2', 'envd-3', 'envd-4'] as const;

/** Where the processes of clients run. */
export interface Workload {
  readonly cgroups: WorkloadCgroups;
  /** Why the workload cannot be frozen, or null. */
  readonly obstacle: string | null;
  /** The cgroup root; null: there are no cgroups. */
  readonly root: CgroupRoot | null;
  /** The mount point of cgroup v2, or null. */
  readonly mount: string | null;
}

/**
 * Creates the cgroups of the workload. `inherited` is the root of this process' earlier program. Throws if the configured root is
 * unusable. If no default root is usable, continues without cgroups.
 */
export function createWorkload(config: Config, inherited: CgroupRoot | undefined): Workload {
  const { cgroups: isWanted, cgroupRoot, workload } = config;
  if (!isWanted) return withoutCgroups('the daemon was started with --no-cgroups', null);
  const mount = findCgroupMount();
  if (inherited) return inRoot(inherited, workload, mount);
  if (cgroupRoot !== null) return inRoot(takeRoot([cgroupRoot]), workload, mount);
  if (mount === null) return withoutCgroups('cgroup v2 is not mounted', null);
  try {
    return inRoot(takeRoot(DEFAULT_ROOTS.map((name) => join(mount, name))), workload, mount);
  } catch (error) {
    return withoutCgroups(messageOf(error), mount);
  }
}

/** Logs which operations and limits the cgroups cannot provide. */
export function logObstacles({ cgroups, obstacle, root }: Workload, config: Config, logger: Logger): void {
  if (obstacle !== null)
    logger.warn({ reason: obstacle }, 'the workload cannot be frozen: /freeze is refused');
  else if (!cgroups.limitsTasks)
    logger.info('the tasks of the workload are not limited: cgroup v2 has no controller pids here');
  if (root && config.cgroupRoot === null && basename(root.path) !== DEFAULT_ROOTS[0])
    logger.warn(
      { cgroupRoot: root.path },
      'another daemon uses the default cgroup root: this daemon uses one of its own',
    );
}

function inRoot(root: CgroupRoot, limits: WorkloadLimits, mount: string | null): Workload {
  using owned = new DisposableStack();
  owned.adopt(root, unlockRoot);
  const cgroups = WorkloadCgroups.create(root.path, limits);
  owned.move();
  const isFreezable = cgroups.all().every((cgroup) => cgroup.isFreezable());
  const obstacle = isFreezable ? null : 'the kernel cannot freeze cgroups: use Linux 5.2 or later';
  return { cgroups, obstacle, root, mount };
}

function withoutCgroups(obstacle: string, mount: string | null): Workload {
  return { cgroups: WorkloadCgroups.create(null), obstacle, root: null, mount };
}
