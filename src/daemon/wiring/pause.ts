import { join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { ExclusiveLock, KeyedQueue } from '../../base/exclusion.ts';
import type { PausableOutput } from '../../base/pausable-output.ts';
import type { Config } from '../config/config.ts';
import { ownCgroup } from '../linux/cgroups/cgroup-mounts.ts';
import { Cgroup } from '../linux/cgroups/cgroup2.ts';
import { FilesystemFreezer } from '../services/pause/filesystem-freezer.ts';
import { Freezer } from '../services/pause/freezer.ts';
import { WriteGate } from '../services/pause/write-gate.ts';
import type { Workload } from './workload.ts';

/** The services that freeze before a pause of the VM. */
export interface Pause {
  /** One operation before a pause holds this lock at a time. */
  readonly lock: ExclusiveLock;
  readonly freezer: Freezer;
  readonly filesystemFreezer: FilesystemFreezer;
  /** Blocks the daemon's own changes to files during a freeze of the file system. */
  readonly gate: WriteGate;
  /** Returns whether something is frozen. */
  readonly isFrozen: () => boolean;
}

/** Creates them. The log's `output` is held while the file system is frozen, even if an earlier daemon froze it. */
export function createPause(
  config: Config,
  workload: Workload,
  logger: Logger,
  output: PausableOutput,
): Pause {
  const lock = new ExclusiveLock();
  const gate = new WriteGate();
  const freezer = createFreezer(config, workload, logger, lock);
  const filesystemFreezer = createFilesystemFreezer(config, logger, output, lock, gate);
  const isFrozen = () => freezer.active || filesystemFreezer.active;
  return { lock, freezer, filesystemFreezer, gate, isFrozen };
}

function createFreezer(
  { runtimeDirectory }: Config,
  { mount, cgroups, obstacle }: Workload,
  logger: Logger,
  lock: ExclusiveLock,
): Freezer {
  return new Freezer({
    workload: cgroups.all(),
    obstacle,
    hierarchy: mount === null ? null : { top: new Cgroup(mount), own: ownCgroup(mount) },
    recordFile: join(runtimeDirectory, 'frozen.json'),
    lock,
    onWatchdog: (error) => logWatchdog(logger, 'a freeze', error),
    onStaleRecord: (error) => logStaleRecord(logger, 'frozen.json', error),
  });
}

function createFilesystemFreezer(
  config: Config,
  logger: Logger,
  output: PausableOutput,
  lock: ExclusiveLock,
  gate: WriteGate,
): FilesystemFreezer {
  const { fsfreezePath: path, runtimeDirectory, metadataService } = config;
  return new FilesystemFreezer({
    path,
    ownDirectories: [runtimeDirectory, ...(metadataService ? [identityDirectory(config)] : [])],
    recordFile: join(runtimeDirectory, 'fsfrozen.json'),
    lock,
    queue: new KeyedQueue('freeze or thaw a file system'),
    gate,
    onFrozen: (frozen) => {
      if (frozen) return output.hold();
      const dropped = output.release();
      if (dropped > 0)
        logger.warn({ dropped }, 'too many log lines during a freeze of the file system: some were dropped');
    },
    onWatchdog: (error) => logWatchdog(logger, `a freeze of the file system of '${path}'`, error),
    onStaleRecord: (error) => logStaleRecord(logger, 'fsfrozen.json', error),
  });
}

/** Returns the directory of the files that identify the sandbox to programs in the guest, such as `/run/svc`. */
export function identityDirectory({ namePrefix }: Config): string {
  return `/run/${namePrefix}`;
}

function logWatchdog(logger: Logger, what: string, error: unknown): void {
  if (error === null) logger.warn(`watchdog: ${what} was not followed by a thaw and has been undone`);
  else logger.error({ err: error }, `watchdog: ${what} was not followed by a thaw and cannot be undone`);
}

function logStaleRecord(logger: Logger, record: string, error: unknown): void {
  const text = 'cannot update the record of what is frozen: after a crash, the next daemon may thaw too much';
  logger.warn({ record, reason: messageOf(error) }, text);
}
