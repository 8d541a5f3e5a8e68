import { fstatSync } from 'node:fs';
import { type AddressInfo, isIPv6 } from 'node:net';
import process from 'node:process';
import { isatty } from 'node:tty';
import type { Logger } from 'pino';
import { isSystemError, messageOf } from '../base/errors.ts';
import { listenError, stopOnSignals, surviveUncaught } from '../base/program/run.ts';
import { INTERFACE_VERSION } from '../base/program/version.ts';
import type { Config } from './config/config.ts';
import { openListeningSocket, separateSockets } from './linux/network/listening-socket.ts';
import { holderOf } from './linux/network/port-holder.ts';
import { setChildLimits, takeWaitingSignals } from './linux/processes/program.ts';
import { exitWithoutThreads, forbidCoreDumps, protectFromOomKiller } from './linux/system/self.ts';
import { notifyServiceManager, type ServiceState, type StoredDescriptor } from './linux/system/systemd.ts';
import { rootObstacle } from './services/guest/abilities.ts';
import { checkState, readState } from './services/handover/state.ts';
import { composeDaemon, type Daemon } from './wiring/compose.ts';
import { type Log, openLog } from './wiring/log.ts';

/** SIGQUIT leaves the processes of clients running, so that the daemon can be replaced. */
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Starts the daemon, which runs until a signal stops it. Throws `unavailable` when the port is taken, `invalid_argument` or
 * `failed_precondition` when a setting cannot be used on this machine.
 */
export async function runDaemon(config: Config): Promise<void> {
  // The modes of new files must not depend on the umask that the daemon was started with.
  process.umask(0o022);
  const log = openLog(config);
  const { logger } = log;
  const inherited = config.handover === null ? null : readState(config.handover);
  const { sockets, others } = separateSockets(config.stored);
  // This comes before anything is taken over from an earlier daemon: when it fails, that daemon's processes and records stay.
  const listener = await openListener(config, inherited?.listener ?? null, sockets, logger);
  const daemon = composeDaemon({ ...config, stored: others }, log, listener, inherited);
  exitWithoutThreads();
  protect(logger);
  if (inherited) setChildLimits(inherited.limits);
  warnWithoutRoot(logger);
  try {
    await serve(daemon, config, listener, log);
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
        return stop(daemon, actionFor(signal), log);
      },
      waitsFor: () => daemon.stopWaitsFor(),
      beforeForcedExit: async (signal) => {
        try {
          if (actionFor(signal) === 'end') daemon.kill();
        } finally {
          await log.written();
        }
      },
    },
    logger,
  );
  process.on('SIGUSR2', () => void daemon.upgrade.start());
  takeWaitingSignals();
  notify('ready');
}

/** `tryProgram` passes the state to a program on trial as this descriptor. */
const TRIED = 3;

/** Checks that this program, whose modules are loaded by now, can read the state. Throws `failed_precondition` otherwise. */
export async function tryUpgrade(): Promise<void> {
  checkState(TRIED);
}

/**
 * Keeps the daemon running after an uncaught error, because its exit would close the pipes and terminals of all processes.
 * It is called after the daemon listens, because a failed start must end the daemon.
 */
function surviveErrors(logger: Logger): void {
  surviveUncaught((error, origin) => {
    logger.error({ err: error, origin }, 'unexpected error: the daemon continues, please report it');
  });
}

/** Protects the daemon only: processes of clients start with an OOM score and a core limit of their own. */
function protect(logger: Logger): void {
  attempt(
    protectFromOomKiller,
    'cannot protect the daemon from the out-of-memory killer: it needs CAP_SYS_RESOURCE',
    logger,
  );
  attempt(
    forbidCoreDumps,
    'cannot disable core dumps of the daemon: they may contain the access token',
    logger,
  );
}

/** Names in the log why calls fail without root, because the errors that clients get do not say so. */
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

/** Opens the listening socket, or takes over the one of an earlier daemon. */
async function openListener(
  { host, port, notifySocket }: Config,
  inherited: number | null,
  stored: readonly StoredDescriptor[],
  logger: Logger,
): Promise<number> {
  const onFailure = (reason: string) =>
    logger.error(
      { reason },
      'the service manager does not keep the listening socket: another program can take the port during a restart',
    );
  try {
    return await openListeningSocket({ host, port }, { inherited, stored, notifySocket }, onFailure);
  } catch (error) {
    throw listenError(error, host, port, isSystemError(error, 'EADDRINUSE') ? await holderOf(port) : null);
  }
}

async function serve(daemon: Daemon, config: Config, listener: number, log: Log): Promise<void> {
  await daemon.app.listen(listener);
  const { address, port } = daemon.app.server.address() as AddressInfo;
  log.logger.info({ address, port, version: config.version, interface: INTERFACE_VERSION }, 'ready');
  if (isTerminal(1)) log.output.write(`ready: try curl http://${hostFor(address)}:${port}/health\n`);
}

/** Returns whether this descriptor is a terminal. In the journal and in a pipe, the answer does not load `node:tty`. */
function isTerminal(descriptor: number): boolean {
  return fstatSync(descriptor).isCharacterDevice() && isatty(descriptor);
}

/** The host of a URL that reaches a socket which listens at this address from the same machine. */
function hostFor(address: string): string {
  if (address === '0.0.0.0' || address === '::') return 'localhost';
  return isIPv6(address) ? `[${address}]` : address;
}

/** Returns whether this signal ends the processes or leaves them running. */
function actionFor(signal: (typeof STOP_SIGNALS)[number]): 'end' | 'leave' {
  return signal === 'SIGQUIT' ? 'leave' : 'end';
}

async function stop(daemon: Daemon, processes: 'end' | 'leave', log: Log): Promise<void> {
  await daemon.stop(processes);
  log.logger.info({ processes }, 'stopped');
  await daemon.closeLog();
  await log.written();
  // The pipes of running processes, calls to file systems that do not answer, and a reader of the log that has stalled would keep
  // the event loop alive.
  if (processes === 'leave' || daemon.isHeldUp() || log.isStalled) process.exit();
}
