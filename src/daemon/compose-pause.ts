import { join } from 'node:path';
import type { Logger } from 'pino';
import { ExclusiveLock } from '../base/exclusion.ts';
import type { HeldOutput } from '../base/held-output.ts';
import { identityDirectory } from './compose-init.ts';
import type { Config } from './config.ts';
import { Cgroup, ownCgroup } from './os/cgroup2.ts';
import { Collapser } from './services/collapse/collapse.ts';
import { FilesystemFreezer } from './services/freeze/filesystem-freezer.ts';
import { Freezer } from './services/freeze/freezer.ts';
import { WriteGate } from './services/freeze/write-gate.ts';
import type { WorkloadCgroups } from './services/process/cgroups.ts';

/** What makes the guest ready for a pause. */
export interface Pause {
  readonly freezer: Freezer;
  readonly filesystemFreezer: FilesystemFreezer;
  readonly collapser: Collapser;
  /** What the daemon's changes to files go through. */
  readonly gate: WriteGate;
}

export interface PauseSurroundings {
  /** Of cgroup v2, or null. */
  readonly mount: string | null;
  readonly cgroups: WorkloadCgroups;
  /** Why the workload cannot be frozen, or null. */
  readonly obstacle: string | null;
  readonly logger: Logger;
  readonly output: HeldOutput;
  /** Lets go of what the daemon keeps of former answers. */
  readonly forget: () => void;
}

export function createPause(config: Config, surroundings: PauseSurroundings): Pause {
  const lock = new ExclusiveLock();
  const gate = new WriteGate();
  return {
    freezer: createFreezer(config, surroundings, lock),
    filesystemFreezer: createFilesystemFreezer(config, surroundings, lock, gate),
    collapser: new Collapser(lock, surroundings.forget),
    gate,
  };
}

function createFreezer(
  config: Config,
  { mount, cgroups, obstacle, logger }: PauseSurroundings,
  lock: ExclusiveLock,
): Freezer {
  return new Freezer({
    workload: cgroups.all(),
    obstacle,
    hierarchy: mount === null ? null : { top: new Cgroup(mount), own: ownCgroup(mount) },
    recordFile: join(config.runtimeDirectory, 'frozen.json'),
    lock,
    onWatchdog: (error) => tellWatchdog(logger, 'a freeze', error),
  });
}

function createFilesystemFreezer(
  config: Config,
  { logger, output }: PauseSurroundings,
  lock: ExclusiveLock,
  gate: WriteGate,
): FilesystemFreezer {
  const { fsfreezePath: path, runtimeDirectory, metadataService } = config;
  return new FilesystemFreezer({
    path,
    ownDirectories: [runtimeDirectory, ...(metadataService ? [identityDirectory(config)] : [])],
    recordFile: join(runtimeDirectory, 'fsfrozen.json'),
    lock,
    gate,
    onFrozen: (frozen) => {
      if (frozen) return output.hold();
      const dropped = output.release();
      if (dropped > 0) logger.warn({ dropped }, 'lines of the log were dropped during a freeze');
    },
    onWatchdog: (error) => tellWatchdog(logger, `a freeze of the file system of '${path}'`, error),
  });
}

function tellWatchdog(logger: Logger, what: string, error: unknown): void {
  if (error === null) logger.warn(`${what} that nobody undid was undone`);
  else logger.error({ err: error }, `${what} that nobody undid could not be undone`);
}
