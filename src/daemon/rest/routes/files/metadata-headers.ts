import type { IncomingMessage } from 'node:http';
import type { Metadata } from '../../../services/files/metadata.ts';

const PREFIX = 'x-metadata-';

/** What the `X-Metadata-<key>` headers say, keys in lower case; the first counts when one repeats. */
export function metadataOf(request: IncomingMessage): Metadata {
  const metadata = new Map<string, string>();
  for (const [name, [first = '']] of Object.entries(request.headersDistinct) as [string, string[]][]) {
    if (name.startsWith(PREFIX)) metadata.set(name.slice(PREFIX.length), first);
  }
  return Object.fromEntries(metadata);
}
