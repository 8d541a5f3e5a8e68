import { accessSync, constants } from 'node:fs';
import { dirname } from 'node:path';
import { messageOf } from '../base/errors.ts';
import { INTERFACE_VERSION } from '../base/program/version.ts';
import type { Config } from './config/config.ts';
import { findCgroupMount } from './linux/cgroups/cgroup-mounts.ts';
import { Cgroup } from './linux/cgroups/cgroup2.ts';
import { abilities, type CgroupAbilities } from './services/guest/abilities.ts';
import { extensionObstacles } from './wiring/extensions.ts';
import { forwardingObstacle } from './wiring/ports.ts';

/** Prints what `GET /health?verbose` says about this guest, without a daemon and without changing anything. */
export async function doctor(config: Config): Promise<void> {
  const { version } = config;
  const cgroups = inspect(config);
  const sources = {
    cgroups,
    forwardingObstacle: () => forwardingObstacle(config),
    extensionObstacles: () => extensionObstacles(cgroups),
  };
  const report = { version, interface: INTERFACE_VERSION, abilities: await abilities(sources, true) };
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}

/** Returns what cgroups of the workload could do, without creating them. */
function inspect({ cgroups, cgroupRoot }: Config): CgroupAbilities {
  const missing = (obstacle: string) => ({ obstacle, accountsMemory: false, limitsTasks: false });
  if (!cgroups) return missing('cgroups are off: start without --no-cgroups');
  const mount = findCgroupMount();
  if (mount === null) return missing('cgroup v2 is not mounted');
  try {
    const parent = new Cgroup(existing(cgroupRoot ?? mount));
    accessSync(parent.path, constants.W_OK);
    const controllers = parent.controllers();
    // The root of the hierarchy has no `cgroup.freeze`, but its children have.
    const freezable = [parent, ...parent.children()].some((cgroup) => cgroup.isFreezable());
    return {
      obstacle: freezable ? null : 'the kernel cannot freeze cgroups: use Linux 5.2 or later',
      accountsMemory: controllers.includes('memory'),
      limitsTasks: controllers.includes('pids'),
    };
  } catch (error) {
    return missing(`cannot create cgroups: ${messageOf(error)}`);
  }
}

/** Returns the directory, or the nearest one above it that exists. */
function existing(path: string): string {
  return new Cgroup(path).exists() || path === '/' ? path : existing(dirname(path));
}
