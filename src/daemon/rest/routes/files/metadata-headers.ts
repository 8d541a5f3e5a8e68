import type { IncomingMessage } from 'node:http';
import type { Metadata } from '../../../services/files/metadata.ts';

const PREFIX = 'x-metadata-';

/** What the `X-Metadata-<key>` headers say, keys in lower case and not empty; the first counts when one repeats. */
export function metadataOf(request: IncomingMessage): Metadata {
  const metadata = new Map<string, string>();
  for (const [name, [first = '']] of Object.entries(request.headersDistinct) as [string, string[]][]) {
    const key = name.startsWith(PREFIX) ? name.slice(PREFIX.length) : '';
    if (key !== '') metadata.set(key, first);
  }
  return Object.fromEntries(metadata);
}
