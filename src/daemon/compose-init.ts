import { join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf } from '../base/errors.ts';
import type { Config } from './config.ts';
import { wallClock } from './os/machine.ts';
import type { Guest } from './services/guest/guest.ts';
import { SYSTEM_TRUST_STORE } from './services/init/ca-bundle.ts';
import { Identity } from './services/init/identity.ts';
import { Init } from './services/init/init.ts';
import { MetadataReader, readMetadata } from './services/init/metadata.ts';
import { type InitDependencies, initSteps } from './services/init/steps.ts';
import { SYSTEM_TOOLS, Volumes } from './services/init/volumes.ts';

/** /init with the guest's own clock, certificates, hosts and mounts. */
export function createInit(
  { namePrefix, runtimeDirectory }: Config,
  dependencies: Pick<InitDependencies, 'guest' | 'freezer' | 'filesystemFreezer' | 'metadata'>,
): Init {
  const steps = initSteps({
    ...dependencies,
    clock: wallClock,
    trustStore: SYSTEM_TRUST_STORE,
    // What /init calls hyperloopIP the guest finds under this name.
    hosts: { file: '/etc/hosts', name: `hyperloop.${namePrefix}.internal` },
    volumes: new Volumes(SYSTEM_TOOLS, join(runtimeDirectory, 'volumes')),
  });
  return new Init(steps);
}

/** Where programs of the guest find what it is: `/run/svc`. */
export function identityDirectory({ namePrefix }: Config): string {
  return `/run/${namePrefix}`;
}

/** Null when there is no metadata service. */
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
        logger.warn({ reason: messageOf(error) }, 'the identity of the guest cannot be written');
      }
    },
    onFailure: (error) => logger.warn({ reason: messageOf(error) }, 'metadata cannot be read yet'),
  });
}
