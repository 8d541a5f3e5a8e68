import type { Transfers } from '../../base/tally.ts';
import { createAttributes } from '../extensions/attributes/attributes.ts';
import { createCopy } from '../extensions/copy/copy.ts';
import { createSearch } from '../extensions/search/search.ts';
import { createZip } from '../extensions/zip/zip.ts';
import type { StreamServer } from '../http/connect/connect-stream.ts';
import type { Extension } from '../http/extension.ts';
import type { EntrySource } from '../services/files/entries/entry.ts';
import type { Guest } from '../services/guest/guest.ts';
import type { WriteGate } from '../services/pause/write-gate.ts';
import type { WorkloadCgroups } from '../services/process/cgroups/cgroups.ts';

interface CoreServices {
  readonly guest: Guest;
  readonly entries: EntrySource;
  readonly gate: WriteGate;
  readonly cgroups: WorkloadCgroups;
  readonly uploads: Transfers;
}

interface CoreBounds {
  readonly bounds: { readonly streams: StreamServer };
}

/** Creates all extensions: the only place that knows them. Without the line of one, and its folder, the daemon is without it. */
export function createExtensions(services: CoreServices, { bounds }: CoreBounds): Extension[] {
  return [
    createSearch({ ...services, streams: bounds.streams }),
    createZip(services),
    createAttributes(services),
    createCopy(services),
  ];
}

/** Each extension as an ability of the guest: why it is missing, or null. */
export function extensionObstacles(): Readonly<Record<string, string | null>> {
  return { search: null, zip: null, setAttributes: null, copy: null };
}
