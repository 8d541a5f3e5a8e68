import type { Server } from 'node:net';
import { basename, join } from 'node:path';
import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { Connections } from '../../base/http/connections.ts';
import { Transfers } from '../../base/tally.ts';
import { Unread } from '../../base/unread.ts';
import type { Config } from '../config/config.ts';
import { REQUEST_LIMIT_BYTES } from '../http/connect/request.ts';
import { StreamPlaces } from '../http/connect/stream-places.ts';
import type { AppOptions } from '../http/routes.ts';
import { App } from '../http/server.ts';
import { findCgroupMount } from '../linux/cgroups/cgroup-mounts.ts';
import { Lanes } from '../linux/lanes/lanes.ts';
import { onlyUser, UserDatabase } from '../linux/system/users.ts';
import type { LogCollector } from '../services/collector/log-collector.ts';
import { Guest } from '../services/guest/guest.ts';
import { MetricsReader } from '../services/guest/metrics.ts';
import type { Handover } from '../services/handover/state.ts';
import type { Upgrade } from '../services/handover/upgrade.ts';
import type { FilesystemFreezer } from '../services/pause/filesystem-freezer.ts';
import type { Freezer } from '../services/pause/freezer.ts';
import { CgroupRoot, type CgroupRootState } from '../services/process/cgroups/cgroup-root.ts';
import { WorkloadCgroups, type WorkloadLimits } from '../services/process/cgroups/cgroups.ts';
import { processLog } from '../services/process/lifecycle/process-log.ts';
import { ProcessTable } from '../services/process/table.ts';
import { PolledWatches } from '../services/watch/polled.ts';
import { Watcher } from '../services/watch/watcher.ts';
import { createUpgrade, type HandingOver, type Parts, succeed } from './handover.ts';
import { createInit } from './init.ts';
import type { Log } from './log.ts';
import { createHealth, createPause } from './pause.ts';
import { createForwards, forwardingObstacle } from './ports.ts';
import { createRecords } from './records.ts';

/** Names of the default cgroup roots: of the first daemon on this machine, and of others beside it. */
const DEFAULT_ROOTS = ['envd', 'envd-2', 'envd-3', 'envd-4'] as const;
const LEAST_UNREAD_BYTES = 4 * 1024 * 1024;
const LEAST_REQUEST_BYTES = 2 * REQUEST_LIMIT_BYTES.json;

/** The composed daemon, not listening yet. */
export interface Daemon {
  readonly app: App;
  readonly upgrade: Upgrade;
  /** Thaws, ends streams, watches and the server; ends the processes or leaves them running. */
  stop(processes: 'end' | 'leave'): Promise<void>;
  /** What a stop in progress waits for. */
  stopWaitsFor(): string;
  /** Sends SIGKILL to all processes, when an orderly stop did not complete. */
  kill(): void;
  /** The log's collector; null: there is none. */
  readonly collector: Pick<LogCollector, 'close'> | null;
  /** Whether a file system blocks threads of the pool. */
  isHeldUp(): boolean;
}

/**
 * Creates all services and connects them, together with the other files of this folder.
 * @param log where log lines go: its output is held while the file system is frozen
 * @param inherited the state of an earlier program of this process, or null
 */
export function compose(config: Config, logger: Logger, log: Log, inherited: Handover | null = null): Daemon {
  const owned = new DisposableStack();
  const aborts = { shutdown: new AbortController(), stopping: new AbortController() };
  const users = new UserDatabase();
  const guest = new Guest(users, onlyUser());
  const lanes = new Lanes({ limitMs: config.fileTimeout * 1000, threads: config.threads });
  const entries = { users, lanes, metadataPrefix: `user.${config.namePrefix}.` };
  const mount = config.cgroups ? findCgroupMount() : null;
  const { cgroups, obstacle, root } = createCgroups(config, mount, inherited?.cgroupRoot);
  // After an upgrade or a crash, leaves of processes that have ended meanwhile still have their memory figures.
  if (!inherited && config.stored.length === 0) cgroups.removeEmptyLeaves();
  for (const part of [root, cgroups]) owned.use(part);
  const bounds = createBounds(config);
  const { unread } = bounds;
  const transfers = { uploads: new Transfers(), downloads: new Transfers() };
  const output = { output: log.output, dropBuffers: () => app.dropBuffers() };
  const pause = createPause(config, { mount, cgroups, obstacle, logger, ...output });
  // After `createPause`: it holds the log's output if the file system is still frozen from an earlier run.
  tellLimits({ cgroups, obstacle, root }, config, logger);
  for (const part of [pause.freezer, pause.filesystemFreezer, pause.idleTrim]) owned.use(part);
  const records = createRecords(config, logger);
  const observer = processLog(logger, config);
  const processes = new ProcessTable(guest, cgroups, { ...config, lanes, unread, observer }, records);
  const watcher = owned.use(new Watcher(lanes));
  const polled = owned.use(new PolledWatches(watcher));
  const { init, volumes, metadata, collector } = createInit(config, { guest, lanes, logger, log, ...pause });
  owned.use(metadata);
  const ports = owned.use(
    createForwards(config, logger, pause, () => portOf(app.server), inherited?.forwards),
  );
  const parts = { ...pause, ...aborts, guest, init, volumes, watcher, polled, processes, records, ports };
  const upgrade = createUpgrade(config, logger, () => ({ ...parts, root, app }));
  const services = { cgroups, entries, upgrade };
  const app = new App(
    {
      ...parts,
      ...transfers,
      ...services,
      metrics: new MetricsReader(),
      health: createHealth(config, { cgroups, obstacle }, pause, () => forwardingObstacle(config)),
    },
    { ...config, ...bounds, logger, log, shutdown: aborts.shutdown.signal },
  );
  succeed(inherited, config.stored, parts, logger);
  const ends = { ...createStop({ ...parts, app, owned }), kill: () => processes.kill() };
  return { app, upgrade, collector, ...ends, isHeldUp: () => lanes.isBusy };
}

/** What bounds all clients together. */
function createBounds(config: Config): Pick<AppOptions, 'places' | 'connections' | 'unread' | 'requests'> {
  return {
    places: new StreamPlaces(config.maxStreams),
    connections: new Connections(config.maxConnections),
    unread: new Unread(unreadLimit(config)),
    requests: createRequests(config),
  };
}

/** Null while the server does not listen. */
function portOf(server: Server): number | null {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : null;
}

interface Stopped extends Parts, Pick<HandingOver, 'stopping'> {
  readonly app: App;
  readonly freezer: Freezer;
  readonly filesystemFreezer: FilesystemFreezer;
  readonly owned: Disposable;
}

function createStop(daemon: Stopped): Pick<Daemon, 'stop' | 'stopWaitsFor'> {
  let step = '';
  const stop = async (action: 'end' | 'leave') => {
    const { stopping, shutdown } = daemon;
    stopping.abort(new EnvdError('unavailable', 'the daemon is stopping'));
    shutdown.abort(stopping.signal.reason);
    step = 'the thaw';
    await daemon.filesystemFreezer.release();
    daemon.freezer.thaw();
    step = 'processes';
    if (action === 'end') await daemon.processes.stop();
    else daemon.processes.handOver();
    step = 'the server';
    await daemon.app.close();
    daemon.owned[Symbol.dispose]();
  };
  return { stop, stopWaitsFor: () => step };
}

interface UsableCgroups {
  readonly cgroups: WorkloadCgroups;
  /** Why the workload cannot be frozen, or null. */
  readonly obstacle: string | null;
  /** Null without cgroups. */
  readonly root: CgroupRoot | null;
}

/** Throws if the configured root is unusable; if the discovered one is, continues without cgroups. */
function createCgroups(
  { cgroups: wanted, cgroupRoot, workload }: Config,
  mount: string | null,
  inherited: CgroupRootState | undefined,
): UsableCgroups {
  if (!wanted) return withoutCgroups('the daemon was started with --no-cgroups');
  if (inherited) return withCgroups(CgroupRoot.continueFrom(inherited), workload);
  if (cgroupRoot !== null) return withCgroups(CgroupRoot.take([cgroupRoot]), workload);
  if (mount === null) return withoutCgroups('cgroup v2 is not mounted');
  try {
    return withCgroups(CgroupRoot.take(DEFAULT_ROOTS.map((name) => join(mount, name))), workload);
  } catch (error) {
    return withoutCgroups(messageOf(error));
  }
}

function withCgroups(root: CgroupRoot, limits: WorkloadLimits): UsableCgroups {
  using owned = new DisposableStack();
  owned.use(root);
  const cgroups = WorkloadCgroups.create(root.path, limits);
  owned.move();
  const isFreezable = cgroups.all().every((cgroup) => cgroup.isFreezable());
  const obstacle = isFreezable ? null : 'the kernel cannot freeze cgroups: use Linux 5.2 or later';
  return { cgroups, obstacle, root };
}

function tellLimits(
  { cgroups, obstacle, root }: UsableCgroups,
  { cgroupRoot }: Config,
  logger: Logger,
): void {
  if (obstacle !== null)
    logger.warn({ reason: obstacle }, 'the workload cannot be frozen: /freeze is refused');
  else if (!cgroups.limitsTasks)
    logger.info('the tasks of the workload are not limited: cgroup v2 has no controller pids here');
  if (root && cgroupRoot === null && basename(root.path) !== DEFAULT_ROOTS[0])
    logger.warn(
      { cgroupRoot: root.path },
      'another daemon uses the default cgroup root: this one has its own',
    );
}

/** One slow reader must always fit, even one that resumes. */
function unreadLimit({ unreadBytes, historyBytes }: Config): number {
  return Math.max(unreadBytes, LEAST_UNREAD_BYTES, 2 * historyBytes);
}

/** One request of the largest size must always fit. */
function createRequests({ requestBytes }: Config): Unread {
  const limit = Math.max(requestBytes, LEAST_REQUEST_BYTES);
  return new Unread(
    limit,
    `request dropped: more than ${limit} bytes of requests are under way (--request-bytes)`,
  );
}

function withoutCgroups(obstacle: string): UsableCgroups {
  return { cgroups: WorkloadCgroups.create(null), obstacle, root: null };
}
