import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import pino, { type Logger } from 'pino';
import { openLogOutput } from '../base/program/log.ts';
import { configOrPrint, listenError, stopOnSignals, surviveUncaught } from '../base/program/run.ts';
import { composeGateway, type Gateway } from './compose.ts';
import { type GatewayConfig, readGatewayConfig } from './config/config.ts';
import { Front } from './routes/server.ts';

/** The maximum duration of a stop after the drain. */
const STOP_LIMIT_MS = 10_000;
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/** Runs the gateway until a signal stops it. Throws an `EnvdError` when it cannot start. */
export async function runGateway(): Promise<void> {
  const config = configOrPrint(readGatewayConfig());
  if (config === null) return;
  const logger = pino({ level: config.logLevel }, openLogOutput());
  const maxConnections = config.maxConnections ?? mostConnections();
  const front = new Front(maxConnections);
  await listen(front, config);
  const { address, port } = front.server.address() as AddressInfo;
  surviveErrors(front, logger);
  const [starting, stopping] = [Promise.withResolvers<Gateway | null>(), new AbortController()];
  const stop = async () => {
    stopping.abort();
    await (await starting.promise)?.stop();
    logger.info('stopped');
  };
  stopOnSignals({ signals: STOP_SIGNALS, stop, limitMs: config.drain * 1000 + STOP_LIMIT_MS }, logger);
  try {
    const gateway = await composeGateway({ ...config, maxConnections }, front, logger, stopping.signal);
    gateway.start();
    starting.resolve(gateway);
  } catch (error) {
    starting.resolve(null);
    await front.close();
    if (stopping.signal.aborted) return;
    throw error;
  }
  if (config.hook === null) logger.warn(NO_HOOK_WARNING);
  if (config.createHook !== null && config.killHook === null) logger.warn(NO_KILL_HOOK_WARNING);
  logger.info({ address, port, version: config.version }, 'ready');
}

/**
 * The part of the descriptors that clients may have: a request takes another one, a quarter as many are kept to sandboxes without a
 * request, and hooks, guests and the registry need some.
 */
const CLIENTS_PART = 0.4;

function mostConnections(): number {
  // Node has raised the soft limit to the hard one.
  const [, limit = '1024'] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
  return Math.floor(CLIENTS_PART * Number(limit));
}

const NO_HOOK_WARNING =
  'no --hook: sandboxes that expire are frozen and no longer reachable, but no machine is paused or removed';

const NO_KILL_HOOK_WARNING =
  '--create-hook without --kill-hook: the machine of a sandbox that could not be created, or is deleted, is left behind';

/** Connections that the kernel may have ready, as far as its own limit (somaxconn) allows. */
const BACKLOG = 4096;

async function listen({ server }: Front, { host, port }: GatewayConfig): Promise<void> {
  try {
    await once(server.listen({ host, port, backlog: BACKLOG }), 'listening');
  } catch (error) {
    throw listenError(error, host, port);
  }
}

/**
 * Makes an uncaught error end the exchange that threw it, and nothing else. Otherwise a client that found the bytes
 * which cause one could end every gateway for all tenants, again after each restart. Going on is safe: exchanges share
 * no state that changes in more than one step, and changes of the registry are atomic (docs/decisions/025-hostile-traffic.md).
 */
function surviveErrors(front: Front, logger: Logger): void {
  // The server emits this error when it cannot accept a connection.
  front.server.on('error', (error) => logger.error({ err: error }, 'a connection could not be accepted'));
  surviveUncaught((error, origin) => {
    const connectionClosed = front.endCurrent();
    logger.error({ err: error, origin, connectionClosed }, 'unexpected error: the gateway goes on');
  });
}
