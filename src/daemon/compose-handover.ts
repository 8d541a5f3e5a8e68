import { closeSync } from 'node:fs';
import type { Server } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../base/errors.ts';
import type { ExclusiveLock } from '../base/exclusion.ts';
import { type Config, environmentWith } from './config.ts';
import { childLimits, forNextProgram, fromEarlierProgram, reapOthers, replaceProgram } from './os/program.ts';
import { listenerOf } from './os/socket-handle.ts';
import type { WriteGate } from './services/freeze/write-gate.ts';
import type { Guest } from './services/guest/guest.ts';
import { type Handover, writeState } from './services/handover/state.ts';
import { Upgrade } from './services/handover/upgrade.ts';
import type { Init } from './services/init/init.ts';
import type { Volumes } from './services/init/volumes.ts';
import type { ProcessTable } from './services/process/table.ts';
import { renumbered } from './services/process/take-over.ts';
import type { PolledWatches } from './services/watch/polled.ts';

/** How long starts under way may take, in milliseconds, before the upgrade is given up. */
const STARTS_MS = 15_000;
/** How long the clients of streams may take to read what has been read from processes, in milliseconds. */
const READERS_MS = 1000;
/** How long responses may take, in milliseconds; then their connections are closed. */
const RESPONSES_MS = 500;
const INTERVAL_MS = 5;
/** How long changes of files may take to complete, in milliseconds, once their clients are gone. */
const CHANGES_MS = 2000;

/** What a daemon hands over. */
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
}

export interface HandingOver extends Parts {
  readonly app: { readonly server: Server };
}

/** `parts` is called for an upgrade. */
export function createUpgrade(config: Config, logger: Logger, parts: () => HandingOver): Upgrade {
  return new Upgrade({
    command: config.commands.next,
    version: config.version,
    lock: () => parts().lock.acquire('upgrade'),
    assertPossible: () => parts().gate.assertOpen(),
    replace: () => handOver(parts(), config, logger),
    onFailure: (reason) => logger.error({ reason }, 'cannot upgrade'),
  });
}

/** Continues for an earlier program of this process. */
export function takeOver(state: Handover, parts: Parts, logger: Logger): void {
  const { guest, init, volumes, polled, processes } = parts;
  const started = renumbered(state.processes, fromEarlierProgram);
  reapOthers(new Set(started.processes.map(({ pid }) => pid)));
  guest.continueFrom(state.guest);
  init.continueFrom(state.initTimestamp === null ? null : BigInt(state.initTimestamp));
  volumes.continueFrom(state.volumes);
  processes.takeOver(started);
  void polled.continueFrom(state.watches, (path, error) =>
    logger.warn({ path, reason: messageOf(error) }, 'cannot watch it any more'),
  );
  logger.info({ processes: started.processes.length }, 'taken over');
}

/**
 * Replaces the program of this process (docs/decisions/034-upgrades-in-place.md). Throws `unavailable` when starts do not
 * complete; the daemon goes on then. Does not return otherwise.
 */
async function handOver(daemon: HandingOver, config: Config, logger: Logger): Promise<void> {
  const { app, processes, shutdown } = daemon;
  const listener = forNextProgram(listenerOf(app.server));
  if (!(await processes.refuseStarts('the daemon is being replaced, try again', STARTS_MS))) {
    processes.allowStarts();
    closeSync(listener);
    throw new EnvdError('unavailable', `starts under way did not complete within ${STARTS_MS / 1000} s`);
  }
  logger.info('upgrading');
  await processes.settle(READERS_MS);
  // A stop has begun meanwhile.
  if (shutdown.signal.aborted) return;
  // Further connections wait in the backlog of the duplicate.
  app.server.close();
  try {
    await leave(daemon, listener, config, logger);
  } catch (error) {
    logger.fatal({ reason: messageOf(error) }, 'cannot hand over');
  }
  // Processes run on; the service manager starts the daemon again.
  process.exit(1);
}

/** From here on there is no way back. Throws or returns when no program could be executed. */
async function leave(daemon: HandingOver, listener: number, config: Config, logger: Logger): Promise<void> {
  const { app, shutdown, gate, watcher } = daemon;
  shutdown.abort(new EnvdError('unavailable', 'the daemon is being replaced, resume'));
  await closeConnections(app.server);
  await gate
    .whenIdle(CHANGES_MS)
    .catch((error) => logger.warn({ reason: messageOf(error) }, 'files are being changed'));
  const state = await stateOf(daemon, listener);
  watcher[Symbol.dispose]();
  execute(state, config, logger);
}

async function stateOf(
  { guest, init, volumes, polled, processes }: HandingOver,
  listener: number,
): Promise<Handover> {
  return {
    ...{ listener, guest: guest.state, volumes: volumes.state, watches: polled.handOver() },
    initTimestamp: init.timestampNs?.toString() ?? null,
    limits: childLimits(),
    processes: renumbered(await processes.handOver(), forNextProgram),
  };
}

/** Nothing is read or reaped from here on. Returns when neither program could be executed. */
function execute(state: Handover, { commands, version }: Config, logger: Logger): void {
  const file = forNextProgram(writeState(version, state));
  // The second is this program, for the case that the first cannot be executed after all.
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

function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve) => server.getConnections((_error, count) => resolve(count ?? 0)));
}
