import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import process from 'node:process';
import pino, { type Logger } from 'pino';
import { EnvdError, isSystemError, messageOf } from '../base/errors.ts';
import { compose, type Gateway } from './compose.ts';
import { type Config, readConfig } from './config.ts';

/** A stop that takes longer than this is cut short, in milliseconds. */
const STOP_LIMIT_MS = 10_000;
/** What waits while the log cannot be written, in bytes; what comes then is dropped. */
const LOG_LIMIT = 1024 * 1024;

/** Runs the gateway until a signal stops it. Throws when it cannot run: in words, with a kind that tells why. */
export async function run(): Promise<void> {
  const invocation = readConfig();
  if (!('run' in invocation)) {
    const stream = invocation.exitCode === 0 ? process.stdout : process.stderr;
    stream.write(invocation.output);
    process.exitCode = invocation.exitCode;
    return;
  }
  const config = invocation.run;
  const logger = pino(
    { level: config.logLevel },
    pino.destination({ dest: 1, sync: false, maxLength: LOG_LIMIT }),
  );
  const gateway = await compose(config, logger);
  try {
    await listen(gateway.server, config);
  } catch (error) {
    await gateway.stop();
    throw error;
  }
  const { address, port } = gateway.server.address() as AddressInfo;
  stopOnSignals(gateway, logger);
  gateway.start();
  logger.info({ address, port, version: config.version }, 'ready');
}

async function listen(server: Server, { host, port }: Config): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen({ host, port }, resolve);
  try {
    await promise;
    server.off('error', reject);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    const kind = error.code === 'EADDRINUSE' ? 'unavailable' : 'invalid_argument';
    throw new EnvdError(kind, `cannot listen on ${host} port ${port}: ${messageOf(error)}`, { cause: error });
  }
}

/** The first signal stops the gateway in order; a second one, or too long a stop, ends it at once. */
function stopOnSignals(gateway: Gateway, logger: Logger): void {
  let stopping = false;
  const stop = async (signal: string) => {
    if (stopping) process.exit(1);
    stopping = true;
    logger.info({ signal }, 'stopping');
    setTimeout(() => {
      logger.error({ limitMs: STOP_LIMIT_MS }, 'stop took too long');
      process.exit(1);
    }, STOP_LIMIT_MS).unref();
    await gateway.stop();
    logger.info('stopped');
  };
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => void stop(signal));
}
