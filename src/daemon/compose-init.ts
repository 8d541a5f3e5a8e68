import { join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf } from '../base/errors.ts';
import type { Config } from './config.ts';
import type { Lanes } from './os/lanes.ts';
import { wallClock } from './os/machine.ts';
import type { Guest } from './services/guest/guest.ts';
import { SYSTEM_TRUST_STORE } from './services/init/ca-bundle.ts';
import { Identity } from './services/init/identity.ts';
import { Init } from './services/init/init.ts';
import { MetadataReader, readMetadata } from './services/init/metadata.ts';
import { type InitDependencies, initSteps } from './services/init/steps.ts';
import { SYSTEM_TOOLS, Volumes } from './services/init/volumes.ts';

/** Creates /init for this machine: its clock, certificates, hosts file and mounts. */
export function createInit(
  { namePrefix }: Config,
  dependencies: Pick<InitDependencies, 'guest' | 'freezer' | 'filesystemFreezer' | 'metadata' | 'volumes'>,
): Init {
  const steps = initSteps({
    ...dependencies,
    clock: wallClock,
    trustStore: SYSTEM_TRUST_STORE,
    // The guest resolves this name to the `hyperloopIP` of /init.
    hosts: { file: '/etc/hosts', name: `hyperloop.${namePrefix}.internal` },
  });
  return new Init(steps);
}

export function createVolumes({ runtimeDirectory }: Config, lanes: Lanes): Volumes {
  return new Volumes(SYSTEM_TOOLS, join(runtimeDirectory, 'volumes'), lanes);
}

/** The directory of the files that identify the sandbox to programs in the guest: `/run/svc`. */
export function identityDirectory({ namePrefix }: Config): string {
  return `/run/${namePrefix}`;
}

/** Null when no metadata service is configured. */
export function createMetadataReader(config: Config, guest: Guest, logger: Logger): MetadataReader | null {
  const { metadataService: url, namePrefix } = config;
  if (url === null) return null;
  const identity = new Identity(guest, identityDirectory(config), namePrefix);
  return new MetadataReader({
    read: (signal) => readMetadata(url, signal),
    async onRead(metadata) {
      try {
        await identity.publish(metadata);
      } catch (error) {
        logger.warn({ reason: messageOf(error) }, 'cannot write the identity of the guest');
      }
    },
    onFailure: (error) => logger.warn({ reason: messageOf(error) }, 'cannot read the metadata: trying again'),
  });
}
