import type { Logger } from 'pino';
import { messageOf } from '../base/errors.ts';
import type { Config } from './config.ts';
import type { Guest } from './services/guest/guest.ts';
import { Identity } from './services/init/identity.ts';
import { readMetadata } from './services/init/metadata-client.ts';
import { MetadataReader } from './services/init/metadata-reader.ts';

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
    async onReading(metadata) {
      try {
        await identity.tell(metadata);
      } catch (error) {
        logger.warn({ reason: messageOf(error) }, 'the identity of the guest cannot be written');
      }
    },
    onFailure: (error) => logger.warn({ reason: messageOf(error) }, 'metadata cannot be read yet'),
  });
}
