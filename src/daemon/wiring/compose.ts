import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { Connections } from '../../base/http/connections.ts';
import { Quota } from '../../base/quota.ts';
import { Transfers } from '../../base/tally.ts';
import { type Config, environmentWith } from '../config/config.ts';
import { readTokenFile } from '../config/token-file.ts';
import { REQUEST_LIMIT_BYTES } from '../http/bodies/body-limits.ts';
import { GoneClients } from '../http/gone-clients.ts';
import { StreamServer } from '../http/protocol/connect-stream.ts';
import { StreamPlaces } from '../http/protocol/stream-places.ts';
import { App } from '../http/server.ts';
import { Lanes } from '../linux/lanes/lanes.ts';
import { portOf } from '../linux/network/listening-socket.ts';
import { readUnanswered } from '../linux/network/unanswered.ts';
import { onlyUser, UserDatabase } from '../linux/system/users.ts';
import { type FirstAccess, Guest } from '../services/guest/guest.ts';
import { Health } from '../services/guest/health.ts';
import { MetricsReader } from '../services/guest/metrics.ts';
import { continueFromEarlier, snapshotOf } from '../services/handover/hand-over.ts';
import { type Handover, headOf } from '../services/handover/state.ts';
import { Upgrade } from '../services/handover/upgrade.ts';
import { SYSTEM_TRUST_STORE, trustVariables } from '../services/init/ca-bundle.ts';
import { SYSTEM_TOOLS, Volumes } from '../services/init/volumes.ts';
import { Collapser } from '../services/pause/collapse.ts';
import type { FilesystemFreezer } from '../services/pause/filesystem-freezer.ts';
import type { Freezer } from '../services/pause/freezer.ts';
import { IdleTrim } from '../services/pause/idle-trim.ts';
import { unlockRoot } from '../services/process/cgroups/cgroup-root.ts';
import { processLog } from '../services/process/lifecycle/process-log.ts';
import { ProcessTable } from '../services/process/table.ts';
import { RecordStore } from '../services/records/record-store.ts';
import { PolledWatches } from '../services/watch/polled.ts';
import { Watcher } from '../services/watch/watcher.ts';
import { createExtensions, extensionObstacles, STREAM_FORMATS } from './extensions.ts';
import { createInit, createMetadataReader, volumesDirectory } from './init.ts';
import { createLogCollector, type Log } from './log.ts';
import { createPause } from './pause.ts';
import { createForwards, forwardingObstacle } from './ports.ts';
import { createWorkload, logObstacles, type Workload } from './workload.ts';

const LEAST_UNREAD_BYTES = 4 * 1024 * 1024;
const LEAST_REQUEST_BYTES = 2 * REQUEST_LIMIT_BYTES.json;

/** The composed daemon, not listening yet. */
export interface Daemon {
  readonly app: App;
  readonly upgrade: Upgrade;
  /** Thaws what is frozen, ends streams, watches and the server, and ends the processes or leaves them running. */
  stop(processes: 'end' | 'leave'): Promise<void>;
  /** Returns what a stop in progress waits for. */
  stopWaitsFor(): string;
  /** Sends SIGKILL to all processes, when an orderly stop did not complete. */
  kill(): void;
  /** Sends the last lines of the log to its collector. */
  closeLog(): Promise<void>;
  /** Returns whether a file system blocks threads of the pool. */
  isHeldUp(): boolean;
}

/**
 * Creates all services and connects them. `listener` is the descriptor of the listening socket, `inherited` the state of this
 * process' earlier program; null: there was none.
 */
export function composeDaemon(
  config: Config,
  log: Log,
  listener: number,
  inherited: Handover | null,
): Daemon {
  const { logger } = log;
  const shutdown = new AbortController();
  const stopping = new AbortController();
  const ground = createGround(config, log, inherited);
  const port = portOf(listener);
  const services = createServices(config, log, port, inherited, ground);
  const { processes, gate, watcher, lock, collector } = services;
  ground.owned.use(createGoneClients(ground.bounds.connections, port, logger));
  const extensions = createExtensions(services, ground.bounds, port, config, stopping.signal, {
    ...services,
    ...ground.bounds,
    version: config.version,
    log,
  });
  const app = new App(services, {
    ...ground.bounds,
    extensions,
    logger,
    shutdown: shutdown.signal,
  });
  const upgraded = { app, listener, processes, gate, watcher, lock, shutdown, stopping: stopping.signal };
  const { written: logWritten } = log;
  const handed = { ...services, parts: extensions.flatMap(({ handedOver }) => handedOver ?? []) };
  const snapshot = (socket: number) => snapshotOf(handed, socket);
  const upgrade = new Upgrade({ ...config, environmentWith }, { ...upgraded, snapshot, logWritten }, logger);
  app.addUpgrade(upgrade);
  continueFromEarlier(handed, inherited, config.stored, logger);
  return {
    app,
    upgrade,
    ...createStop(services, app, ground.owned, [stopping, shutdown]),
    kill: () => processes.kill(),
    closeLog: async () => collector?.close(),
    isHeldUp: () => services.entries.lanes.isBusy,
  };
}

type Ground = ReturnType<typeof createGround>;

/** Creates what the other services need: limits, users, the cgroups of the workload, and the operations before a pause. */
function createGround(config: Config, log: Log, inherited: Handover | null) {
  const { logger, output } = log;
  const owned = new DisposableStack();
  const bounds = createBounds(config);
  const users = new UserDatabase();
  const lanes = new Lanes({ limitMs: config.fileTimeout * 1000, threads: config.threads });
  const workload = createWorkload(config, inherited?.cgroupRoot);
  // After an upgrade or a crash, the leaves of processes that have ended meanwhile are kept, as they have the memory figures.
  if (!inherited && config.stored.length === 0) workload.cgroups.removeEmptyLeaves();
  if (workload.root) owned.adopt(workload.root, unlockRoot);
  owned.use(workload.cgroups);
  const pause = createPause(config, workload, logger, output);
  // This follows `createPause`, which holds the log's output if an earlier daemon has left the file system frozen.
  logObstacles(workload, config, logger);
  const collapser = new Collapser(pause.lock, () => bounds.streams.dropBuffers());
  const idleTrim = new IdleTrim(collapser, pause.isFrozen);
  for (const one of [pause.freezer, pause.filesystemFreezer, idleTrim]) owned.use(one);
  return { owned, bounds, users, lanes, workload, pause, collapser };
}

type Services = ReturnType<typeof createServices>;

/** Creates the services that clients call. `port` is the daemon's own port. */
function createServices(config: Config, log: Log, port: number, inherited: Handover | null, ground: Ground) {
  const { logger } = log;
  const { owned, bounds, users, lanes, workload, pause, collapser } = ground;
  const { cgroups, root } = workload;
  // The trust store has the certificates of the image, and those that an earlier daemon added.
  const defaults = trustVariables(SYSTEM_TRUST_STORE);
  const guest = new Guest(users, onlyUser(), firstAccess(config, inherited), defaults);
  const records = createRecords(config, log);
  const observer = processLog(logger, config);
  const options = { ...config, lanes, unread: bounds.unread, observer };
  const processes = new ProcessTable(guest, cgroups, options, records);
  const watcher = owned.use(new Watcher(lanes));
  const polled = owned.use(new PolledWatches(watcher));
  const metadata = owned.use(createMetadataReader(config, guest, logger));
  const collector = createLogCollector(config, log, pause, metadata);
  // After a resume, the metadata and the collector may belong to another sandbox.
  pause.lock.on('acquire', () => {
    metadata?.forget();
    collector?.pause();
  });
  const volumes = new Volumes(SYSTEM_TOOLS, volumesDirectory(config), lanes);
  const init = createInit(config, guest, volumes, metadata, pause, logger);
  const ports = owned.use(createForwards(config, logger, pause.freezer, port, inherited?.forwards));
  const { lock, gate, freezer, filesystemFreezer, isFrozen } = pause;
  return {
    ...{ guest, cgroups, root, records, processes, watcher, polled, collector, volumes, init, ports },
    ...{ lock, gate, freezer, filesystemFreezer, isFrozen, collapser },
    entries: { users, lanes, metadataPrefix: `user.${config.namePrefix}.` },
    uploads: new Transfers(),
    downloads: new Transfers(),
    metrics: new MetricsReader(),
    health: createHealth(config, workload, freezer, filesystemFreezer),
  };
}

/** Reads the file with the first token. After an upgrade it may be gone, and the token of the earlier program counts. */
function firstAccess({ tokenFile, requireToken }: Config, inherited: Handover | null): FirstAccess {
  const accessToken = tokenFile === null || inherited ? null : readTokenFile(tokenFile);
  return { accessToken, requiresToken: requireToken };
}

/** Creates the store of what the next daemon needs if this one is killed (docs/decisions/019-crashes.md). */
function createRecords({ notifySocket, version }: Config, { logger }: Log): RecordStore {
  return new RecordStore(notifySocket, headOf(version), (reason) =>
    logger.error(
      { reason },
      'cannot keep the record of a process: a crash of the daemon would lose that process',
    ),
  );
}

/** Creates the limits that all clients share. */
function createBounds(config: Config) {
  const { maxStreams, maxConnections, unreadBytes, historyBytes, requestBytes } = config;
  // The limits always leave room for one slow reader, even one that resumes, and for one request of the largest size.
  const unread = new Quota(Math.max(unreadBytes, LEAST_UNREAD_BYTES, 2 * historyBytes));
  const most = Math.max(requestBytes, LEAST_REQUEST_BYTES);
  const text = `request dropped: all requests take more than ${most} bytes (--request-bytes): try again later`;
  return {
    places: new StreamPlaces(maxStreams),
    connections: new Connections(maxConnections),
    unread,
    requests: new Quota(most, text),
    streams: new StreamServer(unread, STREAM_FORMATS),
  };
}

/** A kernel that does not tell which clients are gone is named once. It ends their connections by itself, after many minutes. */
function createGoneClients(connections: Connections, port: number, logger: Logger): GoneClients {
  let isTold = false;
  return new GoneClients(
    connections,
    () => readUnanswered(port),
    (error) => {
      if (!isTold) logger.warn({ reason: messageOf(error) }, 'cannot tell which clients are gone');
      isTold = true;
    },
  );
}

function createHealth(
  config: Config,
  { cgroups, obstacle }: Workload,
  freezer: Freezer,
  filesystemFreezer: FilesystemFreezer,
): Health {
  const accountsMemory = cgroups.all().length > 0 && cgroups.accountsMemory;
  const abilities = { obstacle, accountsMemory, limitsTasks: cgroups.limitsTasks };
  return new Health({
    version: config.version,
    cgroups: abilities,
    extensionObstacles: () => extensionObstacles(abilities, config),
    forwardingObstacle: () => forwardingObstacle(config),
    runtimeDirectory: config.runtimeDirectory,
    isManaged: config.notifySocket !== null,
    freezer,
    filesystemFreezer,
  });
}

/** Returns the functions that stop the daemon, step by step. A stop first aborts `ending`. */
function createStop(
  { filesystemFreezer, freezer, processes }: Services,
  app: App,
  owned: Disposable,
  ending: readonly AbortController[],
): Pick<Daemon, 'stop' | 'stopWaitsFor'> {
  let step = '';
  const stop = async (action: 'end' | 'leave') => {
    const reason = new EnvdError('unavailable', 'the daemon is stopping');
    for (const one of ending) one.abort(reason);
    step = 'the thaw';
    await filesystemFreezer.release();
    freezer.thaw();
    step = 'processes';
    if (action === 'end') await processes.stop();
    else processes.handOver();
    step = 'the server';
    await app.close();
    owned[Symbol.dispose]();
  };
  return { stop, stopWaitsFor: () => step };
}
