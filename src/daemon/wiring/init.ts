import { join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { ExclusiveLock } from '../../base/exclusion.ts';
import type { Config } from '../config/config.ts';
import type { Lanes } from '../linux/lanes/lanes.ts';
import { reseedRandom, WallClock } from '../linux/system/machine.ts';
import type { LogCollector } from '../services/collector/log-collector.ts';
import type { Guest } from '../services/guest/guest.ts';
import { SYSTEM_TRUST_STORE, trustVariables } from '../services/init/ca-bundle.ts';
import { Identity } from '../services/init/identity.ts';
import { Init } from '../services/init/init.ts';
import { type Metadata, readMetadata } from '../services/init/metadata.ts';
import { MetadataReader, type MetadataReaderOptions } from '../services/init/metadata-reader.ts';
import { MetadataRoute } from '../services/init/metadata-route.ts';
import { type InitDependencies, initSteps } from '../services/init/steps.ts';
import { SYSTEM_TOOLS, Volumes } from '../services/init/volumes.ts';
import { createLogCollector, type Log } from './log.ts';

/**
 * Until the first read of the metadata by itself, in milliseconds: the start has the event loop until then. A call that needs them reads
 * at once.
 */
const FIRST_READ_MS = 50;

export interface InitParts {
  readonly init: Init;
  readonly volumes: Volumes;
  /** Null when no metadata service is configured. */
  readonly metadata: MetadataReader | null;
  /** Null when no collector can be named. */
  readonly collector: LogCollector | null;
}

interface Frozen {
  readonly active: boolean;
}

interface Pausing {
  readonly lock: { readonly isHeld: boolean };
  readonly freezer: Frozen;
  readonly filesystemFreezer: Frozen;
}

/** Creates /init for this machine: its clock, certificates, hosts file and mounts. */
export function createInit(
  config: Config,
  {
    lanes,
    logger,
    lock,
    log,
    ...others
  }: Pick<InitDependencies, 'guest'> & {
    readonly freezer: InitDependencies['freezer'] & Frozen;
    readonly filesystemFreezer: InitDependencies['filesystemFreezer'] & Frozen;
    readonly lanes: Lanes;
    readonly logger: Logger;
    readonly lock: ExclusiveLock;
    readonly log: Log;
  },
): InitParts {
  const { freezer, filesystemFreezer } = others;
  const isPaused = pausedBy({ lock, freezer, filesystemFreezer });
  const refresh = () => metadata?.refresh();
  const collector = createLogCollector(config, { queue: log.queue, logger, isPaused, refresh });
  const metadata = metadataReaderOf(config, others.guest, logger, collector);
  // After a resume they may belong to another sandbox.
  lock.on('acquire', () => {
    metadata?.forget();
    collector?.pause();
  });
  // Certificates of the image, or added by an earlier daemon.
  others.guest.defaultVariables = trustVariables(SYSTEM_TRUST_STORE);
  const volumes = new Volumes(SYSTEM_TOOLS, join(config.runtimeDirectory, 'volumes'), lanes);
  const steps = initSteps({
    ...others,
    metadata,
    volumes,
    clock: new WallClock(),
    onClockError: (error) => logger.warn({ reason: messageOf(error) }, 'cannot set the clock'),
    reseed: reseedRandom,
    trustStore: SYSTEM_TRUST_STORE,
    // The guest resolves this name to the `hyperloopIP` of /init.
    eventsVariable: `${config.namePrefix.toUpperCase()}_EVENTS_ADDRESS`,
    hosts: { file: '/etc/hosts', name: `hyperloop.${config.namePrefix}.internal` },
  });
  return { init: new Init(steps), volumes, metadata, collector };
}

/** The directory of the files that identify the sandbox to programs in the guest: `/run/svc`. */
export function identityDirectory({ namePrefix }: Config): string {
  return `/run/${namePrefix}`;
}

/** Returns what tells whether a pause is being prepared, or something is still frozen after one. */
function pausedBy({ lock, freezer, filesystemFreezer }: Pausing): () => boolean {
  return () => lock.isHeld || freezer.active || filesystemFreezer.active;
}

function metadataReaderOf(
  config: Config,
  guest: Guest,
  logger: Logger,
  collector: LogCollector | null,
): MetadataReader | null {
  const { metadataService: url, metadataIsOptional, namePrefix } = config;
  if (url === null) return null;
  const identity = new Identity(guest, identityDirectory(config), namePrefix);
  return createMetadataReader({
    ...{ isOptional: metadataIsOptional, identity, collector, logger },
    route: MetadataRoute.to(url),
    read: metadataSource(url),
    firstMs: FIRST_READ_MS,
  });
}

/** What reads the metadata at a URL. */
function metadataSource(url: URL): (signal: AbortSignal) => Promise<Metadata> {
  return (signal) => readMetadata(url, signal);
}

/** Where metadata come from, and who is told of them. */
interface MetadataParts {
  readonly isOptional: boolean;
  readonly identity: Pick<Identity, 'publish'>;
  readonly collector: LogCollector | null;
  /** Null: it is the guest's own affair. */
  readonly route: Pick<MetadataRoute, 'learnBy' | 'repair'> | null;
  readonly logger: Logger;
  read(signal: AbortSignal): Promise<Metadata>;
  /** Until the first read in the background, in milliseconds; null: it begins now. */
  readonly firstMs: number | null;
}

/** Creates a reader of metadata. */
function createMetadataReader(parts: MetadataParts): MetadataReader {
  const { isOptional, identity, collector, route, logger } = parts;
  const options: MetadataReaderOptions = {
    isOptional,
    async read(signal) {
      if (!route) return parts.read(signal);
      try {
        return await route.learnBy(() => parts.read(signal));
      } catch (error) {
        await repair(route, logger);
        throw error;
      }
    },
    async onRead(metadata) {
      collector?.name(metadata);
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
  };
  return new MetadataReader(options, parts.firstMs);
}

async function repair(route: Pick<MetadataRoute, 'repair'>, logger: Logger): Promise<void> {
  try {
    const repaired = await route.repair();
    if (repaired)
      logger.warn(repaired, 'the route to the metadata service was broken, and has been set again');
  } catch (error) {
    logger.warn({ reason: messageOf(error) }, 'cannot repair the route to the metadata service');
  }
}
