import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import pino, { type Logger } from 'pino';
import { openLogOutput } from '../base/program/log.ts';
import { configOrPrint, listenError, stopOnSignals, surviveUncaught } from '../base/program/run.ts';
import { composeGateway, type Gateway } from './compose.ts';
import { type GatewayConfig, readGatewayConfig } from './config/config.ts';
import { Front } from './routes/server.ts';

/** After the drain, a stop may take this long. */
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
 * Clients may use this share of the descriptors. Each request needs a second one, a quarter as many are kept for idle
 * connections to sandboxes, and hooks, guests and the registry need some too.
 */
const CLIENTS_PART = 0.4;

function mostConnections(): number {
  // Node raises the soft limit to the hard one when it starts, so this is the hard limit.
  const [, limit = '1024'] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
  return Math.floor(CLIENTS_PART * Number(limit));
}

const NO_HOOK_WARNING =
  'no --hook is set: an expired sandbox is frozen and unreachable, but its machine keeps running: set --hook to pause or remove it';

const NO_KILL_HOOK_WARNING =
  '--create-hook is set without --kill-hook: the machine of a deleted or failed sandbox is left behind: set --kill-hook';

/** The kernel may queue this many new connections, up to its own limit (somaxconn, listen(2)). */
const BACKLOG = 4096;

async function listen({ server }: Front, { host, port }: GatewayConfig): Promise<void> {
  try {
    await once(server.listen({ host, port, backlog: BACKLOG }), 'listening');
  } catch (error) {
    throw listenError(error, host, port);
  }
}

/**
 * Lets an uncaught error end only the connection whose exchange threw it. Otherwise a client that knew bytes which cause such
 * an error could end every gateway for all tenants, again after each restart. It is safe to continue, because exchanges share
 * no state that changes in more than one step, and changes of the registry are atomic
 * (docs/decisions/025-hostile-traffic.md).
 */
function surviveErrors(front: Front, logger: Logger): void {
  // The server emits `error` when accept(2) fails, for instance because no descriptor is free.
  front.server.on('error', (error) =>
    logger.error({ err: error }, 'the gateway could not accept a connection'),
  );
  surviveUncaught((error, origin) => {
    const connectionClosed = front.endCurrent();
    logger.error(
      { err: error, origin, connectionClosed },
      'unexpected error: the gateway continues, please report it',
    );
  });
}
