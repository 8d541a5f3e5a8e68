import { closeSync } from 'node:fs';
import { isIPv4 } from 'node:net';
import { release } from 'node:os';
import type { Logger } from 'pino';
import { messageOf } from '../base/errors.ts';
import type { Config } from './config.ts';
import { findCgroupMount } from './os/cgroup-mounts.ts';
import { addressOfDefaultRoute } from './os/default-route.ts';
import { readListeningSockets } from './os/listening-sockets.ts';
import { kernelIsSince } from './os/machine.ts';
import { fromEarlierProgram } from './os/program.ts';
import { Steering, type SteeringState } from './os/steering.ts';
import type { AbilitySources } from './services/guest/abilities.ts';
import { Forwards, type ForwardsOptions } from './services/ports/forwards.ts';

/** What forwards need to know of pauses. */
interface ForwardsPause {
  readonly freezer: { readonly active: boolean };
}

/**
 * Creates the forwards of localhost listeners. `ownPort`: the daemon's; null while it does not listen. `earlier`: what an
 * earlier program of this process has handed over.
 */
export function createForwards(
  config: Config,
  logger: Logger,
  { freezer }: ForwardsPause,
  ownPort: () => number | null,
  earlier: SteeringState | undefined,
): Forwards {
  const forwards = new Forwards({
    ...createSteering(config, logger, earlier),
    maxPorts: config.maxForwards,
    read: readListeningSockets,
    address: addressSource(config),
    ownPort: () => ownPort() ?? config.port,
    // Before the daemon has its own port, a process could be taken for it.
    isPaused: () => freezer.active || ownPort() === null,
    onChange: (change) => logger.info(change, 'localhost listeners are forwarded'),
    onFailure: (error) => logger.warn({ reason: messageOf(error) }, 'cannot forward localhost listeners'),
  });
  return forwards;
}

/** Opens steering where it is wanted and possible; logs the reason otherwise. */
function createSteering(config: Config, logger: Logger, earlier: SteeringState | undefined): SteeringChoice {
  const kept = earlier && {
    listeners: fromEarlierProgram(earlier.listeners),
    marks: fromEarlierProgram(earlier.marks),
  };
  const choice = chooseSteering(config, kept ?? null);
  const { steeringObstacle: reason } = choice;
  if (reason !== null && reason !== NOTHING_FORWARDED)
    logger.info({ reason }, 'forwarded connections are carried by the daemon, not steered by the kernel');
  return choice;
}

/** Why localhost listeners are not forwarded, and why connections are not steered to them. */
export function portObstacles(config: Config, ports: Forwards): PortObstacles {
  return {
    forwardingObstacle: () => forwardingObstacle(config),
    steeringObstacle: () => ports.steeringObstacle,
  };
}

/** The same without a daemon; nothing is left behind. */
export function expectedObstacles(config: Config): PortObstacles {
  return {
    forwardingObstacle: () => forwardingObstacle(config),
    steeringObstacle: () => {
      const { steering, steeringObstacle } = chooseSteering(config, null);
      steering?.[Symbol.dispose]();
      return steeringObstacle;
    },
  };
}

type PortObstacles = Pick<AbilitySources, 'forwardingObstacle' | 'steeringObstacle'>;
type SteeringChoice = Pick<ForwardsOptions, 'steering' | 'steeringObstacle'>;

/** Earlier kernels were not tried; 5.15 lacks the check that keeps steering off multipath TCP sockets. */
const STEERING_SINCE = [6, 1] as const;
const NOTHING_FORWARDED = 'nothing is forwarded';

function chooseSteering(config: Config, kept: SteeringState | null): SteeringChoice {
  const without = (steeringObstacle: string) => {
    if (kept) for (const descriptor of Object.values(kept)) closeSync(descriptor);
    return { steering: null, steeringObstacle };
  };
  if (!config.steering) return without('the daemon was started with --no-steering');
  if (config.forwardAddress === null ? isLocal(config) : !isIPv4(config.forwardAddress))
    return without(NOTHING_FORWARDED);
  if (!kernelIsSince(...STEERING_SINCE))
    return without(`Linux ${release()} is not known to: use 6.1 or later`);
  const cgroup = findCgroupMount();
  if (cgroup === null) return without('cgroup v2 is not mounted');
  try {
    return { steering: Steering.open(cgroup, config.maxForwards, kept), steeringObstacle: null };
  } catch (error) {
    const needed = 'it needs CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF, and root';
    return { steering: null, steeringObstacle: `the kernel refuses it: ${messageOf(error)}: ${needed}` };
  }
}

/** Why localhost listeners are not forwarded, or null. */
async function forwardingObstacle(config: Config): Promise<string | null> {
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
