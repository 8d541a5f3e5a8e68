import type { AddressInfo } from 'node:net';
import process from 'node:process';
import pino, { type Logger } from 'pino';
import { EnvdError, isSystemError, messageOf } from '../base/errors.ts';
import { HeldOutput } from '../base/held-output.ts';
import { surviveFullLog, surviveUncaught } from '../base/last-resort.ts';
import { INTERFACE_VERSION } from '../base/version.ts';
import { compose, type Daemon } from './compose.ts';
import { type Config, readConfig } from './config.ts';
import { forbidCoreDumps } from './os/core-dumps.ts';
import { leadsToJournal, withPriority } from './os/journal.ts';
import { protectFromOomKiller } from './os/oom.ts';
import { notifyServiceManager, type ServiceState } from './os/systemd.ts';

/** A stop that takes longer than this is cut short, in milliseconds. */
const STOP_LIMIT_MS = 10_000;
/** The last one makes way for a new daemon and leaves the processes running. */
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'] as const;
/** What waits while the log cannot be written, in bytes; what comes then is dropped. */
const LOG_LIMIT = 1024 * 1024;

/**
 * Runs the daemon: configuration, composition, listening; it goes on until a signal stops it. Bad usage prints a
 * sentence and sets exit code 2. Throws when the daemon cannot run: `unavailable` when the port is taken,
 * `invalid_argument` or `failed_precondition` when a setting cannot be used here.
 */
export async function run(): Promise<void> {
  const invocation = readConfig();
  if (!('run' in invocation)) {
    const stream = invocation.exitCode === 0 ? process.stdout : process.stderr;
    stream.write(invocation.output);
    process.exitCode = invocation.exitCode;
    return;
  }
  const config = invocation.run;
  // Files and directories of clients get the usual modes, whatever the daemon was started with.
  process.umask(0o022);
  // Written by the thread pool: a journal that does not read must not stop the daemon.
  const standardOutput = pino.destination({ dest: 1, sync: false, maxLength: LOG_LIMIT });
  surviveFullLog(standardOutput);
  const output = new HeldOutput((lines) => standardOutput.write(lines));
  // Before the destination's own, which writes the last of what it has.
  process.prependOnceListener('exit', () => output.flush());
  const inJournal = leadsToJournal(1, config.journalStream);
  const write = (line: string) => output.write(inJournal ? withPriority(line) : line);
  const logger = pino({ level: config.logLevel }, { write });
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
  stopOnSignals(daemon, logger, () => notify('stopping'));
  notify('ready');
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
    throw describeListenError(error, config);
  }
  const { address, port } = daemon.app.server.address() as AddressInfo;
  logger.info({ address, port, version: config.version, interface: INTERFACE_VERSION }, 'ready');
}

function describeListenError(error: unknown, { host, port }: Config): unknown {
  if (isSystemError(error, 'EADDRINUSE')) {
    return new EnvdError('unavailable', `cannot listen on ${host} port ${port}: the port is taken`, {
      cause: error,
    });
  }
  if (isSystemError(error, 'EACCES', 'EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL')) {
    return new EnvdError('invalid_argument', `cannot listen on ${host} port ${port}: ${error.code}`, {
      cause: error,
    });
  }
  return error;
}

/** The first signal stops the daemon in order; a second one, or too long a stop, ends it at once. */
function stopOnSignals(daemon: Daemon, logger: Logger, onStop: () => void): void {
  let stopping: 'end' | 'leave' | null = null;
  const endAtOnce = () => {
    try {
      if (stopping === 'end') daemon.kill();
    } finally {
      process.exit(1);
    }
  };
  const stop = async (signal: (typeof STOP_SIGNALS)[number]) => {
    if (stopping) endAtOnce();
    stopping = signal === 'SIGUSR2' ? 'leave' : 'end';
    onStop();
    logger.info({ signal }, 'stopping');
    setTimeout(() => {
      logger.error({ limitMs: STOP_LIMIT_MS }, 'stop took too long');
      endAtOnce();
    }, STOP_LIMIT_MS).unref();
    try {
      await daemon.stop(stopping);
    } catch (error) {
      logger.error({ err: error }, 'stop failed');
      endAtOnce();
    }
    logger.info({ processes: stopping }, 'stopped');
    // Nothing else would end a daemon whose processes go on.
    if (stopping === 'leave') process.exit();
  };
  for (const signal of STOP_SIGNALS) process.on(signal, () => void stop(signal));
}
