import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import process from 'node:process';
import pino, { type Logger } from 'pino';
import { EnvdError, isSystemError, messageOf } from '../base/errors.ts';
import { surviveFullLog, surviveUncaught } from '../base/last-resort.ts';
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
  const output = pino.destination({ dest: 1, sync: false, maxLength: LOG_LIMIT });
  surviveFullLog(output);
  const logger = pino({ level: config.logLevel }, output);
  const gateway = await compose(config, logger);
  try {
    await listen(gateway.server, config);
  } catch (error) {
    await gateway.stop();
    throw error;
  }
  const { address, port } = gateway.server.address() as AddressInfo;
  stopOnSignals(gateway, logger);
  surviveErrors(gateway, logger);
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

/**
 * An error that nobody has caught ends the exchange that it was thrown in, and nothing else: whoever found the bytes
 * that cause it could otherwise end every gateway for all tenants, again after each restart. Going on is safe here:
 * exchanges share nothing that is changed in more than one step, and what must last is in the registry, where a record
 * is changed whole or not at all.
 */
function surviveErrors(gateway: Gateway, logger: Logger): void {
  // Of this server alone: a connection that cannot be accepted.
  gateway.server.on('error', (error) => logger.error({ err: error }, 'a connection could not be accepted'));
  surviveUncaught((error, origin) => {
    const connectionClosed = gateway.endCurrent();
    logger.error({ err: error, origin, connectionClosed }, 'unexpected error: the gateway goes on');
  });
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
