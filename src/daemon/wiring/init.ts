import { join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Config } from '../config/config.ts';
import { reseedRandom, WallClock } from '../linux/system/machine.ts';
import type { Guest } from '../services/guest/guest.ts';
import { SYSTEM_TRUST_STORE } from '../services/init/ca-bundle.ts';
import { Identity } from '../services/init/identity.ts';
import { Init } from '../services/init/init.ts';
import { readMetadata } from '../services/init/metadata.ts';
import { MetadataReader } from '../services/init/metadata-reader.ts';
import { MetadataRoute } from '../services/init/metadata-route.ts';
import { initSteps } from '../services/init/steps.ts';
import type { Volumes } from '../services/init/volumes.ts';
import { identityDirectory, type Pause } from './pause.ts';

/** The daemon first reads the metadata so long after its start, which needs the event loop. A call that needs them reads at once. */
const FIRST_READ_MS = 50;

/** Creates /init with the clock, the certificates, the hosts file and the mounts of this machine. */
export function createInit(
  config: Config,
  guest: Guest,
  volumes: Volumes,
  metadata: MetadataReader | null,
  { freezer, filesystemFreezer }: Pause,
  logger: Logger,
): Init {
  const steps = initSteps({
    ...{ guest, volumes, metadata, freezer, filesystemFreezer },
    clock: new WallClock(),
    onClockError: (error) => logger.warn({ reason: messageOf(error) }, 'cannot set the clock'),
    reseed: reseedRandom,
    trustStore: SYSTEM_TRUST_STORE,
    // The guest resolves this name to the `hyperloopIP` of /init.
    eventsVariable: `${config.namePrefix.toUpperCase()}_EVENTS_ADDRESS`,
    hosts: { file: '/etc/hosts', name: `hyperloop.${config.namePrefix}.internal` },
  });
  return new Init(steps);
}

/** Returns the directory of the records of mounted volumes. */
export function volumesDirectory({ runtimeDirectory }: Config): string {
  return join(runtimeDirectory, 'volumes');
}

/** Creates the reader of the metadata, which also publishes them to programs of the guest; null: no service is configured. */
export function createMetadataReader(config: Config, guest: Guest, logger: Logger): MetadataReader | null {
  const { metadataService: url, metadataIsOptional: isOptional, namePrefix } = config;
  if (url === null) return null;
  const identity = new Identity(guest, identityDirectory(config), namePrefix);
  // Without a route of its own, reaching the service is up to the guest.
  const route = MetadataRoute.to(url);
  const read = (signal: AbortSignal) => readMetadata(url, signal);
  return new MetadataReader(
    {
      isOptional,
      read: (signal) => (route ? readBy(route, () => read(signal), logger) : read(signal)),
      async onRead(metadata) {
        try {
          await identity.publish(metadata);
        } catch (error) {
          logger.warn({ reason: messageOf(error) }, 'cannot write the identity of the guest');
        }
      },
      onFailure(error) {
        const level = isOptional ? 'debug' : 'warn';
        logger[level]({ reason: messageOf(error) }, 'cannot read the metadata: trying again');
      },
    },
    FIRST_READ_MS,
  );
}

/** Reads by a route, and repairs the route when there is no answer. */
async function readBy<T>(route: MetadataRoute, read: () => Promise<T>, logger: Logger): Promise<T> {
  try {
    return await route.learnBy(read);
  } catch (error) {
    await repair(route, logger);
    throw error;
  }
}

async function repair(route: MetadataRoute, logger: Logger): Promise<void> {
  try {
    const repaired = await route.repair();
    if (repaired) logger.warn(repaired, 'the route to the metadata service was broken: it was set again');
  } catch (error) {
    logger.warn({ reason: messageOf(error) }, 'cannot repair the route to the metadata service');
  }
}
