import type { AddressInfo } from 'node:net';
import process from 'node:process';
import pino, { type Logger } from 'pino';
import { EnvdError, isSystemError, messageOf } from './base/errors.ts';
import { compose, type Daemon } from './compose.ts';
import { type Config, readConfig } from './config.ts';
import { protectFromOomKiller } from './os/oom.ts';

/** A stop that takes longer than this is cut short, in milliseconds. */
const STOP_LIMIT_MS = 10_000;
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

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
  const logger = pino({ level: config.logLevel });
  protect(logger);
  const daemon = compose(config, logger);
  await listen(daemon, config, logger);
  stopOnSignals(daemon, logger);
}

/** Processes of clients are started with a score of their own. */
function protect(logger: Logger): void {
  try {
    protectFromOomKiller();
  } catch (error) {
    logger.warn({ reason: messageOf(error) }, 'the out-of-memory killer may choose the daemon');
  }
}

async function listen(daemon: Daemon, config: Config, logger: Logger): Promise<void> {
  try {
    await daemon.app.listen({ port: config.port, host: config.host });
  } catch (error) {
    await daemon.stop();
    throw describeListenError(error, config);
  }
  const { address, port } = daemon.app.server.address() as AddressInfo;
  logger.info({ address, port, version: config.version }, 'ready');
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
function stopOnSignals(daemon: Daemon, logger: Logger): void {
  let stopping = false;
  const stop = async (signal: string) => {
    if (stopping) process.exit(1);
    stopping = true;
    logger.info({ signal }, 'stopping');
    setTimeout(() => {
      logger.error({ limitMs: STOP_LIMIT_MS }, 'stop took too long');
      process.exit(1);
    }, STOP_LIMIT_MS).unref();
    await daemon.stop();
    logger.info('stopped');
  };
  for (const signal of STOP_SIGNALS) process.on(signal, () => void stop(signal));
}
