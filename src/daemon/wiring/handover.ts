import { closeSync } from 'node:fs';
import type { Server } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { EnvdError, isSystemError, messageOf } from '../../base/errors.ts';
import type { ExclusiveLock } from '../../base/exclusion.ts';
import { connectionsOf } from '../../base/http/connections.ts';
import { type Config, environmentWith } from '../config/config.ts';
import { closeAll } from '../linux/memory/message-queue.ts';
import type { RecordStore } from '../linux/memory/record-store.ts';
import {
  childLimits,
  forNextProgram,
  fromEarlierProgram,
  reapOthers,
  replaceProgram,
} from '../linux/processes/program.ts';
import type { StoredDescriptor } from '../linux/system/systemd.ts';
import type { Guest } from '../services/guest/guest.ts';
import { recover, type Settings, SettingsRecord } from '../services/handover/recovery.ts';
import { type Handover, type Snapshot, writeState } from '../services/handover/state.ts';
import { Upgrade } from '../services/handover/upgrade.ts';
import type { Init } from '../services/init/init.ts';
import type { Volumes } from '../services/init/volumes.ts';
import type { WriteGate } from '../services/pause/write-gate.ts';
import type { Forwards } from '../services/ports/forwards.ts';
import type { CgroupRoot } from '../services/process/cgroups/cgroup-root.ts';
import { renumbered } from '../services/process/recovery/take-over.ts';
import type { ProcessTable } from '../services/process/table.ts';
import type { PolledWatches } from '../services/watch/polled.ts';
import { renumberedForwards } from './ports.ts';

/** The most bytes of a state that is handed over. It is in memory beside what it is made of. */
const MOST_STATE_BYTES = 256 * 1024 * 1024;
/** How long starts under way may take, in milliseconds, before the upgrade is given up. */
const STARTS_MS = 15_000;
/** How long clients of streams may take to read the output read so far, in milliseconds. */
const READERS_MS = 1000;
/** How long responses may take, in milliseconds; then their connections are closed. */
const RESPONSES_MS = 500;
const INTERVAL_MS = 5;
/** How long changes of files may take to complete after their clients are gone, in milliseconds. */
const CHANGES_MS = 2000;

/** The parts of a daemon whose state is handed over. */
export interface Parts {
  readonly guest: Guest;
  readonly init: Init;
  readonly volumes: Volumes;
  readonly polled: PolledWatches;
  readonly processes: ProcessTable;
  readonly gate: WriteGate;
  readonly lock: ExclusiveLock;
  /** Ends all streams. */
  readonly shutdown: AbortController;
  readonly watcher: Disposable;
  readonly records: RecordStore;
  readonly ports: Forwards;
}

type KeptSettings = Pick<Parts, 'guest' | 'init' | 'volumes' | 'records'>;

export interface HandingOver extends Parts {
  readonly app: { readonly server: Server; readonly listener: number };
  /** Aborts when the daemon stops; then it is no longer replaced. */
  readonly stopping: AbortController;
  /** Null without cgroups. */
  readonly root: CgroupRoot | null;
}

/** `parts` is called for an upgrade. */
export function createUpgrade(config: Config, logger: Logger, parts: () => HandingOver): Upgrade {
  return new Upgrade({
    command: config.commands.next,
    version: config.version,
    trialMs: config.upgradeTimeout * 1000,
    lock: () => parts().lock.acquire('upgrade'),
    assertPossible: () => {
      const { gate, stopping } = parts();
      stopping.signal.throwIfAborted();
      gate.assertOpen();
      tryState(parts(), config);
    },
    replace: () => handOver(parts(), config, logger),
    onFailure: (reason) => logger.error({ reason }, 'cannot upgrade'),
  });
}

/** Continues for an earlier daemon, if there was one, and records the settings from now on. */
export function succeed(
  inherited: Handover | null,
  stored: readonly StoredDescriptor[],
  parts: Parts,
  logger: Logger,
): void {
  if (inherited) takeOver(inherited, parts, logger);
  else if (stored.length > 0) recoverFrom(stored, parts, logger);
  else keepSettings(parts);
}

/** Records the settings now, and when a call of `init` may have changed them. */
function keepSettings({ guest, init, volumes, records }: KeptSettings): void {
  if (!records.isActive) return;
  const record = new SettingsRecord(records);
  const keep = () => record.set({ guest: guest.state, volumes: volumes.state }, init.timestampNs);
  init.on('progress', keep);
  keep();
}

/** Continues for a daemon that was killed. */
function recoverFrom(stored: readonly StoredDescriptor[], parts: Parts, logger: Logger): void {
  const own = stored.map(({ name, descriptor }) => ({ name, descriptor: fromEarlierProgram(descriptor) }));
  const refuse = (reason: string) => logger.error({ reason }, 'cannot take over a record');
  const found = recover(parts.records, own, refuse);
  if (found.settings) continueWith(found.settings, parts);
  parts.processes.recover(found);
  keepSettings(parts);
  found.forget();
  logger.warn({ processes: found.processes.length }, 'recovered after the end of another daemon');
}

function settingsOf({ guest, init, volumes }: Pick<Parts, 'guest' | 'init' | 'volumes'>): Settings {
  const initTimestamp = init.timestampNs?.toString() ?? null;
  return { guest: guest.state, volumes: volumes.state, initTimestamp };
}

function continueWith(settings: Settings, { guest, init, volumes }: Parts): void {
  guest.continueFrom(settings.guest);
  init.continueFrom(settings.initTimestamp === null ? null : BigInt(settings.initTimestamp));
  volumes.continueFrom(settings.volumes);
}

/** Continues for an earlier program of this process. */
function takeOver(state: Handover, parts: Parts, logger: Logger): void {
  const { polled, processes, records, init } = parts;
  const started = renumbered(state.processes, fromEarlierProgram);
  const all = [...started.processes];
  reapOthers(new Set(all.map(({ pid }) => pid)));
  continueWith(state, parts);
  processes.takeOver({ ...started, processes: all });
  keepSettings(parts);
  const earlier = state.records ?? [];
  records.discard(
    earlier.map(({ name, descriptor }) => ({ name, descriptor: fromEarlierProgram(descriptor) })),
  );
  void polled.continueFrom(state.watches, (path, error) =>
    logger.warn({ path, reason: messageOf(error) }, 'cannot watch it any more'),
  );
  const exits = all.filter(({ end }) => end !== null).length;
  const counts = { processes: all.length - exits, exits, watchers: state.watches.length };
  const forwards = state.forwards?.forwards.length ?? 0;
  init.handover = { build: state.build, ...counts, volumes: state.volumes.length, forwards };
  logger.info({ processes: all.length }, 'taken over');
}

/**
 * Replaces the program of this process (docs/decisions/019-upgrades.md). Throws `unavailable` when starts do not
 * complete, `resource_exhausted` when the state cannot be handed over; the daemon goes on then. Throws the reason when the daemon stops
 * meanwhile. Does not return otherwise.
 */
async function handOver(daemon: HandingOver, config: Config, logger: Logger): Promise<void> {
  const { processes, stopping } = daemon;
  stopping.signal.throwIfAborted();
  try {
    if (!(await processes.refuseStarts('the daemon is being replaced, try again', STARTS_MS))) {
      stopping.signal.throwIfAborted();
      throw new EnvdError('unavailable', `starts under way did not complete within ${STARTS_MS / 1000} s`);
    }
    logger.info('upgrading');
    await processes.settle(READERS_MS);
    stopping.signal.throwIfAborted();
    // Nothing has ended yet, and the state can hardly grow any more.
    tryState(daemon, config);
    await leave(daemon, config, logger);
  } catch (error) {
    // A stop, too, waits for the output of processes.
    processes.goOn();
    throw error;
  }
}

/** Throws the reason when the daemon stops meanwhile; otherwise there is no way back. */
async function leave(daemon: HandingOver, config: Config, logger: Logger): Promise<void> {
  const { app, shutdown, stopping, gate, watcher, processes } = daemon;
  const listener = forNextProgram(app.listener);
  // Further connections wait in the backlog of the duplicate.
  app.server.close();
  shutdown.abort(new EnvdError('unavailable', 'the daemon is being replaced, resume'));
  await closeConnections(app.server);
  await gate
    .whenIdle(CHANGES_MS)
    .catch((error) => logger.warn({ reason: messageOf(error) }, 'files are being changed'));
  if (stopping.signal.aborted) closeSync(listener);
  // No signal is taken from here on, and nothing is read or reaped.
  stopping.signal.throwIfAborted();
  try {
    // Should the later program end before it listens.
    processes.handOver();
    const state = writeState(config.version, snapshotOf(daemon, listener, forNextProgram));
    watcher[Symbol.dispose]();
    execute(forNextProgram(state), config, logger);
  } catch (error) {
    logger.fatal({ reason: messageOf(error) }, 'cannot hand over');
  }
  // Processes run on; the service manager starts the daemon again.
  process.exit(1);
}

/**
 * Writes the state and drops it. Throws `resource_exhausted` when it is too large, or there is no memory or no descriptor for it.
 */
function tryState(daemon: HandingOver, config: Config): void {
  const copies: number[] = [];
  const copy = (descriptor: number) => {
    const made = forNextProgram(descriptor);
    copies.push(made);
    return made;
  };
  try {
    const snapshot = snapshotOf(daemon, copy(daemon.app.listener), copy);
    copies.push(writeState(config.version, snapshot, MOST_STATE_BYTES));
    copy(copies.at(-1) ?? -1);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new EnvdError('resource_exhausted', `cannot hand over: ${messageOf(error)}`, { cause: error });
  } finally {
    closeAll(copies);
  }
}

/** `copy` makes the descriptors that the next program inherits. */
function snapshotOf(parts: HandingOver, listener: number, copy: (descriptor: number) => number): Snapshot {
  return {
    ...settingsOf(parts),
    listener,
    watches: parts.polled.state,
    limits: childLimits(),
    processes: renumbered(parts.processes.state, copy),
    records: parts.records.queues.map(({ name, descriptor }) => ({ name, descriptor: copy(descriptor) })),
    forwards: renumberedForwards(parts.ports.handOver(), copy),
    cgroupRoot: parts.root?.handOver(copy),
  };
}

/** `file` has the state. Returns when no program could be executed. */
function execute(file: number, { commands }: Config, logger: Logger): void {
  // The second is this program, in case the first cannot be executed after all.
  for (const program of [commands.next, commands.own]) {
    try {
      replaceProgram(program, environmentWith(file));
    } catch (error) {
      logger.error({ program: program[0], reason: messageOf(error) }, 'cannot execute');
    }
  }
}

async function closeConnections(server: Server): Promise<void> {
  for (let waited = 0; waited < RESPONSES_MS; waited += INTERVAL_MS) {
    server.closeIdleConnections();
    if ((await connectionsOf(server)) === 0) return;
    await delay(INTERVAL_MS);
  }
  server.closeAllConnections();
}
