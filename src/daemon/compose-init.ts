import { join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf } from '../base/errors.ts';
import type { ExclusiveLock } from '../base/exclusion.ts';
import type { Config } from './config.ts';
import type { Lanes } from './os/lanes.ts';
import { wallClock } from './os/machine.ts';
import type { Guest } from './services/guest/guest.ts';
import { SYSTEM_TRUST_STORE } from './services/init/ca-bundle.ts';
import { Identity } from './services/init/identity.ts';
import { Init } from './services/init/init.ts';
import { readMetadata } from './services/init/metadata.ts';
import { MetadataReader } from './services/init/metadata-reader.ts';
import { type InitDependencies, initSteps } from './services/init/steps.ts';
import { SYSTEM_TOOLS, Volumes } from './services/init/volumes.ts';

export interface InitParts {
  readonly init: Init;
  readonly volumes: Volumes;
  /** Null when no metadata service is configured. */
  readonly metadata: MetadataReader | null;
}

/** Creates /init for this machine: its clock, certificates, hosts file and mounts. */
export function createInit(
  config: Config,
  {
    lanes,
    logger,
    lock,
    ...others
  }: Pick<InitDependencies, 'guest' | 'freezer' | 'filesystemFreezer'> & {
    readonly lanes: Lanes;
    readonly logger: Logger;
    readonly lock: ExclusiveLock;
  },
): InitParts {
  const metadata = createMetadataReader(config, others.guest, logger);
  // After a resume they may be those of another sandbox.
  lock.onAcquire = () => metadata?.forget();
  const volumes = new Volumes(SYSTEM_TOOLS, join(config.runtimeDirectory, 'volumes'), lanes);
  const steps = initSteps({
    ...{ ...others, metadata, volumes },
    clock: wallClock,
    onClockError: (error) => logger.warn({ reason: messageOf(error) }, 'cannot set the clock'),
    trustStore: SYSTEM_TRUST_STORE,
    // The guest resolves this name to the `hyperloopIP` of /init.
    eventsVariable: `${config.namePrefix.toUpperCase()}_EVENTS_ADDRESS`,
    hosts: { file: '/etc/hosts', name: `hyperloop.${config.namePrefix}.internal` },
  });
  return { init: new Init(steps), volumes, metadata };
}

/** The directory of the files that identify the sandbox to programs in the guest: `/run/svc`. */
export function identityDirectory({ namePrefix }: Config): string {
  return `/run/${namePrefix}`;
}

function createMetadataReader(config: Config, guest: Guest, logger: Logger): MetadataReader | null {
  const { metadataService: url, metadataIsOptional, namePrefix } = config;
  if (url === null) return null;
  const identity = new Identity(guest, identityDirectory(config), namePrefix);
  return new MetadataReader({
    isOptional: metadataIsOptional,
    read: (signal) => readMetadata(url, signal),
    async onRead(metadata) {
      try {
        await identity.publish(metadata);
      } catch (error) {
        logger.warn({ reason: messageOf(error) }, 'cannot write the identity of the guest');
      }
    },
    onFailure(error) {
      const level = metadataIsOptional ? 'debug' : 'warn';
      logger[level]({ reason: messageOf(error) }, 'cannot read the metadata: trying again');
    },
  });
}
