import type { AddressInfo } from 'node:net';
import process from 'node:process';
import type { Logger } from 'pino';
import { messageOf } from '../base/errors.ts';
import { listenError, stopOnSignals, surviveUncaught } from '../base/program/run.ts';
import { INTERFACE_VERSION } from '../base/program/version.ts';
import type { Config } from './config/config.ts';
import { openListeningSocket, separateSockets } from './linux/network/listening-socket.ts';
import { holderOf } from './linux/network/port-holder.ts';
import { setChildLimits } from './linux/processes/program.ts';
import { exitWithoutThreads, forbidCoreDumps, protectFromOomKiller } from './linux/system/self.ts';
import { notifyServiceManager, type ServiceState, type StoredDescriptor } from './linux/system/systemd.ts';
import { rootObstacle } from './services/guest/abilities.ts';
import { checkState, readState } from './services/handover/state.ts';
import { composeDaemon, type Daemon } from './wiring/compose.ts';
import { openLog } from './wiring/log.ts';

/** SIGQUIT leaves the processes running, for the replacement of the daemon. */
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Starts the daemon, which runs until a signal stops it. Throws `unavailable` when the port is taken, `invalid_argument` or
 * `failed_precondition` when a setting cannot be used on this machine.
 */
export async function runDaemon(config: Config): Promise<void> {
  // The modes of clients' files must not depend on the umask that the daemon was started with.
  process.umask(0o022);
  const log = openLog(config);
  const { logger } = log;
  const inherited = config.handover === null ? null : readState(config.handover);
  const { sockets, others } = separateSockets(config.stored);
  // Before anything of an earlier daemon is taken over: its processes run on, and its records stay, when this fails.
  const listener = await openListener(config, inherited?.listener ?? null, sockets, logger);
  const daemon = composeDaemon({ ...config, stored: others }, log, listener, inherited);
  exitWithoutThreads(() => daemon.isHeldUp());
  protect(logger);
  if (inherited) setChildLimits(inherited.limits);
  warnWithoutRoot(logger);
  try {
    await serve(daemon, config, listener, logger);
  } catch (error) {
    await daemon.stop(inherited || others.length > 0 ? 'leave' : 'end');
    throw error;
  }
  surviveErrors(logger);
  const notify = (state: ServiceState) =>
    attempt(
      () => notifyServiceManager(config.notifySocket, state),
      'cannot notify the service manager',
      logger,
    );
  stopOnSignals(
    {
      signals: STOP_SIGNALS,
      stop: (signal) => {
        notify('stopping');
        return stop(daemon, actionFor(signal), logger);
      },
      waitsFor: () => daemon.stopWaitsFor(),
      beforeForcedExit: (signal) => {
        if (actionFor(signal) === 'end') daemon.kill();
      },
    },
    logger,
  );
  process.on('SIGUSR2', () => void daemon.upgrade.start());
  notify('ready');
}

/** Descriptor of the state in a trial, see `tryProgram`. */
const TRIED = 3;

/** Checks that this program, whose modules are loaded by now, can read the state. Throws `failed_precondition` when it cannot. */
export async function tryUpgrade(): Promise<void> {
  checkState(TRIED);
}

/**
 * Continues after uncaught errors: the exit of the daemon would close the pipes and terminals of all processes. Called
 * after the daemon listens, because a failed start must end it.
 */
function surviveErrors(logger: Logger): void {
  surviveUncaught((error, origin) => {
    logger.error({ err: error, origin }, 'unexpected error: the daemon continues');
  });
}

/** Applies to the daemon only: processes of clients are started with their own OOM score and core limit. */
function protect(logger: Logger): void {
  attempt(protectFromOomKiller, 'cannot protect the daemon from the out-of-memory killer', logger);
  attempt(forbidCoreDumps, 'cannot disable core dumps: they may contain the access token', logger);
}

/** The errors that clients get for single calls do not name this cause. */
function warnWithoutRoot(logger: Logger): void {
  const obstacle = rootObstacle();
  if (obstacle !== null) logger.warn({ uid: process.geteuid?.() }, obstacle);
}

function attempt(action: () => void, failure: string, logger: Logger): void {
  try {
    action();
  } catch (error) {
    logger.warn({ reason: messageOf(error) }, failure);
  }
}

/** Opens the listening socket, or continues with that of an earlier daemon. */
async function openListener(
  { host, port, notifySocket }: Config,
  inherited: number | null,
  stored: readonly StoredDescriptor[],
  logger: Logger,
): Promise<number> {
  const onFailure = (reason: string) =>
    logger.error(
      { reason },
      'the service manager cannot keep the port: a restart leaves it free for a moment',
    );
  try {
    return await openListeningSocket({ host, port }, { inherited, stored, notifySocket }, onFailure);
  } catch (error) {
    throw listenError(error, host, port, () => holderOf(port));
  }
}

async function serve(daemon: Daemon, config: Config, listener: number, logger: Logger): Promise<void> {
  await daemon.app.listen(listener);
  const { address, port } = daemon.app.server.address() as AddressInfo;
  logger.info({ address, port, version: config.version, interface: INTERFACE_VERSION }, 'ready');
}

/** Whether this signal ends the processes or leaves them running. */
function actionFor(signal: (typeof STOP_SIGNALS)[number]): 'end' | 'leave' {
  return signal === 'SIGQUIT' ? 'leave' : 'end';
}

async function stop(daemon: Daemon, processes: 'end' | 'leave', logger: Logger): Promise<void> {
  await daemon.stop(processes);
  logger.info({ processes }, 'stopped');
  await daemon.closeLog();
  // The pipes of running processes, and file systems that do not answer, would keep the event loop alive.
  if (processes === 'leave' || daemon.isHeldUp()) process.exit();
}
