import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import process from 'node:process';
import { messageOf } from '../../../base/errors.ts';
import { INTERFACE_VERSION } from '../../../base/program/version.ts';
import type { Config } from '../../config/config.ts';
import { findCgroupMount } from '../../linux/cgroups/cgroup-mounts.ts';
import { Cgroup } from '../../linux/cgroups/cgroup2.ts';
import { abilities, type CgroupAbilities } from '../../services/guest/abilities.ts';
import { missingKernelOptions } from './kernel-options.ts';
import { lockSettings } from './lock-settings.ts';
import { judge } from './verdict.ts';

/** The exit code for a guest that is not ready for a pause. */
const NOT_READY = 3;
/** sd_booted(3): this directory exists where systemd is the init. It would start a daemon with NOTIFY_SOCKET. */
const SYSTEMD = '/run/systemd/system';

/**
 * Prints what `GET /health?verbose` says about this guest, without a daemon and without changing anything, and then a verdict.
 * Sets the exit code to 3 if the guest is not ready for a pause.
 */
export async function doctor(
  config: Config,
  extensionObstacles: (cgroups: CgroupAbilities) => Record<string, string | null>,
  forwardingObstacle: (config: Config) => Promise<string | null>,
): Promise<void> {
  const { version, runtimeDirectory, notifySocket } = config;
  const cgroups = inspect(config);
  const sources = {
    cgroups,
    forwardingObstacle: () => forwardingObstacle(config),
    extensionObstacles: () => extensionObstacles(cgroups),
    runtimeDirectory,
    isManaged: notifySocket !== null || existsSync(SYSTEMD),
  };
  const found = await abilities(sources, true);
  const verdict = judge(found, await missingKernelOptions());
  const report = {
    version,
    interface: INTERFACE_VERSION,
    abilities: found,
    lockSettings: lockSettings(),
    verdict,
  };
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  if (!verdict.readyForPause) process.exitCode = NOT_READY;
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
