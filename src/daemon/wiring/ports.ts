import { isIPv4 } from 'node:net';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Config } from '../config/config.ts';
import { addressOfDefaultRoute } from '../linux/network/default-route.ts';
import { readListeningSockets } from '../linux/network/listening-sockets.ts';
import type { Freezer } from '../services/pause/freezer.ts';
import { Forwards, type ForwardsState } from '../services/ports/forwards.ts';

/**
 * Creates the forwards of localhost listeners, which pause while `freezer` is active. `port` is the daemon's own port, `earlier` what
 * this process' earlier program has handed over.
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
    onChange: (change) => logger.info(change, 'the forwarded localhost listeners have changed'),
    onLatecomers: (refused) =>
      logger.warn({ refused }, 'another user listens at the same port: it stays forwarded to the first user'),
    onFailure: (error) =>
      logger.warn({ reason: messageOf(error) }, 'cannot forward localhost listeners: trying again'),
    earlier,
  });
}

/** Returns why localhost listeners are not forwarded, or null. */
export async function forwardingObstacle(config: Config): Promise<string | null> {
  try {
    await readListeningSockets('127.0.0.1');
    if ((await addressSource(config)()) !== null) return null;
  } catch (error) {
    return `cannot read listening sockets: ${messageOf(error)}`;
  }
  if (config.forwardAddress !== null) return `--forward-address is '${config.forwardAddress}'`;
  return isLocal(config)
    ? `the daemon listens at ${config.host} alone: change --host, or set --forward-address`
    : 'there is no default route: set --forward-address';
}

/** Returns the source of the address to forward to. A daemon that listens on loopback alone does not expose other ports. */
function addressSource(config: Config): () => Promise<string | null> {
  const { forwardAddress } = config;
  if (forwardAddress !== null) return async () => (isIPv4(forwardAddress) ? forwardAddress : null);
  return isLocal(config) ? async () => null : addressOfDefaultRoute;
}

function isLocal({ host }: Config): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}
