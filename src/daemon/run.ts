import type { AddressInfo } from 'node:net';
import process from 'node:process';
import pino, { type Logger } from 'pino';
import { messageOf } from '../base/errors.ts';
import { HeldOutput } from '../base/held-output.ts';
import { openLogOutput } from '../base/log.ts';
import { listenError, stopOnSignals, surviveUncaught } from '../base/run.ts';
import { INTERFACE_VERSION } from '../base/version.ts';
import { compose, type Daemon } from './compose.ts';
import type { Config } from './config.ts';
import { forbidCoreDumps, protectFromOomKiller } from './os/self.ts';
import { isJournal, notifyServiceManager, type ServiceState, withPriority } from './os/systemd.ts';

/** The last one makes way for a new daemon and leaves the processes running. */
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'] as const;

/**
 * Runs the daemon: composition, listening; it goes on until a signal stops it. Throws when the daemon cannot run: `unavailable` when the port is taken,
 * `invalid_argument` or `failed_precondition` when a setting cannot be used here.
 */
export async function run(config: Config): Promise<void> {
  // Files and directories of clients get the usual modes, whatever the daemon was started with.
  process.umask(0o022);
  const { logger, output } = openLog(config);
  const daemon = compose(config, logger, output);
  protect(logger);
  warnWithoutRoot(logger);
  await listen(daemon, config, logger);
  outlive(logger);
  const notify = (state: ServiceState) =>
    attempt(
      () => notifyServiceManager(config.notifySocket, state),
      'the service manager was not told',
      logger,
    );
  stopOnSignals(
    {
      signals: STOP_SIGNALS,
      stop: (signal) => {
        notify('stopping');
        return stop(daemon, fateOf(signal), logger);
      },
      cutShort: (signal) => {
        if (fateOf(signal) === 'end') daemon.kill();
      },
    },
    logger,
  );
  notify('ready');
}

/** The log, whose output can be held. */
function openLog({ journalStream, logLevel }: Config): { logger: Logger; output: HeldOutput } {
  const standardOutput = openLogOutput();
  const output = new HeldOutput((lines) => standardOutput.write(lines));
  // Before the destination's own, which writes the last of what it has.
  process.prependOnceListener('exit', () => output.flush());
  const inJournal = isJournal(1, journalStream);
  const write = (line: string) => output.write(inJournal ? withPriority(line) : line);
  return { logger: pino({ level: logLevel }, { write }), output };
}

/**
 * What nobody has caught ends what it was thrown in and no more: with the daemon would go the pipes and terminals of
 * every process. Not before it listens: a daemon that cannot begin ends.
 */
function outlive(logger: Logger): void {
  surviveUncaught((error, origin) => {
    logger.error({ err: error, origin }, 'unexpected error: the daemon goes on');
  });
}

/** Both are the daemon's alone: processes of clients are started with a score and a limit of their own. */
function protect(logger: Logger): void {
  attempt(protectFromOomKiller, 'the out-of-memory killer may choose the daemon', logger);
  attempt(forbidCoreDumps, 'the access token may get into a core dump', logger);
}

/** What follows from it comes to clients as errors of single calls, which do not tell why. */
function warnWithoutRoot(logger: Logger): void {
  const uid = process.geteuid?.();
  if (uid === 0) return;
  logger.warn(
    { uid },
    'not root: no process can be started, files can be made and changed as this user alone, and nothing can be frozen, mounted or set',
  );
}

function attempt(action: () => void, otherwise: string, logger: Logger): void {
  try {
    action();
  } catch (error) {
    logger.warn({ reason: messageOf(error) }, otherwise);
  }
}

async function listen(daemon: Daemon, config: Config, logger: Logger): Promise<void> {
  try {
    await daemon.app.listen({ port: config.port, host: config.host });
  } catch (error) {
    await daemon.stop('end');
    throw listenError(error, config.host, config.port);
  }
  const { address, port } = daemon.app.server.address() as AddressInfo;
  logger.info({ address, port, version: config.version, interface: INTERFACE_VERSION }, 'ready');
}

/** What becomes of the processes. */
function fateOf(signal: (typeof STOP_SIGNALS)[number]): 'end' | 'leave' {
  return signal === 'SIGUSR2' ? 'leave' : 'end';
}

async function stop(daemon: Daemon, fate: 'end' | 'leave', logger: Logger): Promise<void> {
  await daemon.stop(fate);
  logger.info({ processes: fate }, 'stopped');
  // Nothing else would end a daemon whose processes go on.
  if (fate === 'leave') process.exit();
}
