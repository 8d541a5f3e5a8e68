import { isIPv4 } from 'node:net';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Config } from '../config/config.ts';
import { addressOfDefaultRoute } from '../linux/network/default-route.ts';
import { readListeningSockets } from '../linux/network/listening-sockets.ts';
import type { Freezer } from '../services/pause/freezer.ts';
import { Forwards, type ForwardsState } from '../services/ports/forwards.ts';

/**
 * Creates the forwards of localhost listeners, which rest while `freezer` is active. `port`: the daemon's; `earlier`: what an earlier
 * program of this process has handed over.
 */
export function createForwards(
  config: Config,
  logger: Logger,
  freezer: Freezer,
  port: number,
  earlier: ForwardsState | undefined,
): Forwards {
  return new Forwards({
    maxPorts: config.maxForwards,
    read: readListeningSockets,
    address: addressSource(config),
    ownPort: () => port,
    isPaused: () => freezer.active,
    onChange: (change) => logger.info(change, 'localhost listeners are forwarded'),
    onLatecomers: (refused) =>
      logger.warn({ refused }, 'another user listens at the same port: it stays forwarded to the first one'),
    onFailure: (error) => logger.warn({ reason: messageOf(error) }, 'cannot forward localhost listeners'),
    earlier,
  });
}

/** Why localhost listeners are not forwarded, or null. */
export async function forwardingObstacle(config: Config): Promise<string | null> {
  try {
    await readListeningSockets('127.0.0.1');
    if ((await addressSource(config)()) !== null) return null;
  } catch (error) {
    return `listening sockets cannot be read: ${messageOf(error)}`;
  }
  if (config.forwardAddress !== null) return `--forward-address is '${config.forwardAddress}'`;
  return isLocal(config) ? `the daemon itself is reachable at ${config.host} alone` : 'no default route';
}

/** A daemon that listens on loopback alone exposes no port of others. */
function addressSource(config: Config): () => Promise<string | null> {
  const { forwardAddress } = config;
  if (forwardAddress !== null) return async () => (isIPv4(forwardAddress) ? forwardAddress : null);
  return isLocal(config) ? async () => null : addressOfDefaultRoute;
}

function isLocal({ host }: Config): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}
