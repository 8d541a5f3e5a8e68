import { join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { ExclusiveLock, SerialQueue } from '../../base/exclusion.ts';
import type { HeldOutput } from '../../base/held-output.ts';
import type { Config } from '../config/config.ts';
import { ownCgroup } from '../linux/cgroups/cgroup-mounts.ts';
import { Cgroup } from '../linux/cgroups/cgroup2.ts';
import type { AbilitySources } from '../services/guest/abilities.ts';
import { Health } from '../services/guest/health.ts';
import { Collapser } from '../services/pause/collapse.ts';
import { FilesystemFreezer } from '../services/pause/filesystem-freezer.ts';
import { Freezer } from '../services/pause/freezer.ts';
import { IdleTrim } from '../services/pause/idle-trim.ts';
import { WriteGate } from '../services/pause/write-gate.ts';
import type { WorkloadCgroups } from '../services/process/cgroups/cgroups.ts';
import { identityDirectory } from './init.ts';

/** The operations before a pause. */
export interface Pause {
  /** Held by one operation at a time. */
  readonly lock: ExclusiveLock;
  readonly freezer: Freezer;
  readonly filesystemFreezer: FilesystemFreezer;
  readonly collapser: Collapser;
  readonly idleTrim: IdleTrim;
  /** Blocks the daemon's own changes to files during a freeze of the file system. */
  readonly gate: WriteGate;
}

export interface PauseDependencies {
  /** Mount point of cgroup v2, or null. */
  readonly mount: string | null;
  readonly cgroups: WorkloadCgroups;
  /** Why the workload cannot be frozen, or null. */
  readonly obstacle: string | null;
  readonly logger: Logger;
  readonly output: HeldOutput;
  /** Drops buffers kept for reuse. */
  readonly dropBuffers: () => void;
}

export function createPause(config: Config, dependencies: PauseDependencies): Pause {
  const lock = new ExclusiveLock();
  const gate = new WriteGate();
  const freezer = createFreezer(config, dependencies, lock);
  const filesystemFreezer = createFilesystemFreezer(config, dependencies, lock, gate);
  const collapser = new Collapser(lock, dependencies.dropBuffers);
  const isPaused = () => freezer.active || filesystemFreezer.active;
  return { lock, freezer, filesystemFreezer, collapser, gate, idleTrim: new IdleTrim(collapser, isPaused) };
}

function createFreezer(
  config: Config,
  { mount, cgroups, obstacle, logger }: PauseDependencies,
  lock: ExclusiveLock,
): Freezer {
  return new Freezer({
    workload: cgroups.all(),
    obstacle,
    hierarchy: mount === null ? null : { top: new Cgroup(mount), own: ownCgroup(mount) },
    recordFile: join(config.runtimeDirectory, 'frozen.json'),
    lock,
    onWatchdog: (error) => logWatchdog(logger, 'a freeze', error),
    onStaleRecord: (error) => logStaleRecord(logger, 'frozen.json', error),
  });
}

function createFilesystemFreezer(
  config: Config,
  { logger, output }: PauseDependencies,
  lock: ExclusiveLock,
  gate: WriteGate,
): FilesystemFreezer {
  const { fsfreezePath: path, runtimeDirectory, metadataService } = config;
  return new FilesystemFreezer({
    path,
    ownDirectories: [runtimeDirectory, ...(metadataService ? [identityDirectory(config)] : [])],
    recordFile: join(runtimeDirectory, 'fsfrozen.json'),
    lock,
    queue: new SerialQueue('freeze or thaw a file system'),
    gate,
    onFrozen: (frozen) => {
      if (frozen) return output.hold();
      const dropped = output.release();
      if (dropped > 0) logger.warn({ dropped }, 'log lines were dropped during a freeze');
    },
    onWatchdog: (error) => logWatchdog(logger, `a freeze of the file system of '${path}'`, error),
    onStaleRecord: (error) => logStaleRecord(logger, 'fsfrozen.json', error),
  });
}

function logWatchdog(logger: Logger, what: string, error: unknown): void {
  if (error === null) logger.warn(`watchdog: ${what} was not followed by a thaw and has been undone`);
  else logger.error({ err: error }, `watchdog: ${what} was not followed by a thaw and cannot be undone`);
}

function logStaleRecord(logger: Logger, record: string, error: unknown): void {
  const text = 'cannot update the record of what is frozen: after a crash the next daemon may thaw too much';
  logger.warn({ record, reason: messageOf(error) }, text);
}

/** Tells what this guest can; `obstacle`: why the workload cannot be frozen, or null. */
export function createHealth(
  config: Config,
  { cgroups, obstacle }: Pick<PauseDependencies, 'cgroups' | 'obstacle'>,
  pause: Pause,
  forwardingObstacle: AbilitySources['forwardingObstacle'],
): Health {
  const accountsMemory = cgroups.all().length > 0 && cgroups.accountsMemory;
  return new Health({
    version: config.version,
    cgroups: { obstacle, accountsMemory, limitsTasks: cgroups.limitsTasks },
    forwardingObstacle,
    freezer: pause.freezer,
    filesystemFreezer: pause.filesystemFreezer,
  });
}
