import { execExtension } from '../extensions/exec/exec.ts';
import { NDJSON } from '../extensions/ndjson/ndjson.ts';
import { stopExtension } from '../extensions/stop/stop.ts';
import { pressureObstacle } from '../extensions/usage/pressure.ts';
import { usageExtension } from '../extensions/usage/usage.ts';
import type { OfferedFormat } from '../http/connect/stream-format.ts';
import type { StreamPlaces } from '../http/connect/stream-places.ts';
import type { Extension } from '../http/extension.ts';
import type { EntrySource } from '../services/files/entries/entry.ts';
import type { CgroupAbilities } from '../services/guest/abilities.ts';
import type { Guest } from '../services/guest/guest.ts';
import type { ProcessTable } from '../services/process/table.ts';

/*
 * The one place that knows the extensions. To remove one: delete its folder and its lines here, its messages in proto/, and its
 * tests and pages.
 */

/** What the extensions use. */
export interface ExtendedServices {
  readonly processes: ProcessTable;
  readonly guest: Guest;
  readonly entries: EntrySource;
}

/** Formats of streams besides Connect's. */
export const STREAM_FORMATS: readonly OfferedFormat[] = [NDJSON];

export function createExtensions(
  { processes, guest, entries }: ExtendedServices,
  places: StreamPlaces,
): Extension[] {
  return [
    execExtension(processes, guest, places),
    usageExtension({ ...entries, processes }, places),
    stopExtension(processes),
  ];
}

/** By the name of each extension, why this guest cannot have it, or null: what `/health?verbose` tells. */
export function extensionObstacles({ obstacle }: CgroupAbilities): Record<string, string | null> {
  return { exec: null, ndjson: null, usage: null, pressure: pressureObstacle(), stop: obstacle };
}
