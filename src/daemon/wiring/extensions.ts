import type { Transfers } from '../../base/tally.ts';
import type { Config } from '../config/config.ts';
import { archivesExtension } from '../extensions/archives/extension.ts';
import { createAttributes } from '../extensions/attributes/attributes.ts';
import { createCopy } from '../extensions/copy/copy.ts';
import { digestsExtension } from '../extensions/digests/extension.ts';
import { execExtension } from '../extensions/exec/exec.ts';
import { lastingOutputExtension, lastingOutputObstacle } from '../extensions/lasting-output/extension.ts';
import { NDJSON } from '../extensions/ndjson/ndjson.ts';
import { PortWatch } from '../extensions/ports/port-watch.ts';
import { portsExtension } from '../extensions/ports/ports.ts';
import { prometheusExtension } from '../extensions/prometheus/extension.ts';
import type { DaemonTelemetry } from '../extensions/prometheus/prometheus.ts';
import { createSearch } from '../extensions/search/search.ts';
import { stopExtension } from '../extensions/stop/stop.ts';
import { terminalExtension } from '../extensions/terminal/terminal.ts';
import { pressureObstacle } from '../extensions/usage/pressure.ts';
import { usageExtension } from '../extensions/usage/usage.ts';
import { createZip } from '../extensions/zip/zip.ts';
import type { Extension } from '../http/extension.ts';
import type { StreamServer } from '../http/protocol/connect-stream.ts';
import type { OfferedFormat } from '../http/protocol/event-stream.ts';
import type { StreamPlaces } from '../http/protocol/stream-places.ts';
import type { EntrySource } from '../services/files/entries/entry.ts';
import type { CgroupAbilities } from '../services/guest/abilities.ts';
import type { Guest } from '../services/guest/guest.ts';
import type { WriteGate } from '../services/pause/write-gate.ts';
import type { WorkloadCgroups } from '../services/process/cgroups/cgroups.ts';
import type { ProcessTable } from '../services/process/table.ts';
import type { RecordStore } from '../services/records/record-store.ts';
import { forwardingObstacle } from './ports.ts';

/*
 * The one place that knows the extensions. To remove one: delete its folder and its lines here, its messages in proto/, and its
 * tests and pages.
 */

/** What the extensions use. */
interface ExtendedServices {
  readonly processes: ProcessTable;
  readonly records: RecordStore;
  readonly guest: Guest;
  readonly entries: EntrySource;
  readonly gate: WriteGate;
  readonly cgroups: WorkloadCgroups;
  readonly uploads: Transfers;
  /** Whether the workload or a file system is frozen. */
  readonly isFrozen: () => boolean;
}

interface ExtendedBounds {
  readonly streams: StreamServer;
  readonly places: StreamPlaces;
}

/** Formats of streams besides Connect's. */
export const STREAM_FORMATS: readonly OfferedFormat[] = [NDJSON];

/** `ownPort` is the daemon's, `stopping` aborts when it stops, and `telemetry` has what it counts. */
export function createExtensions(
  services: ExtendedServices,
  { streams, places }: ExtendedBounds,
  ownPort: number,
  config: Config,
  stopping: AbortSignal,
  telemetry: Omit<DaemonTelemetry, 'calls'>,
): Extension[] {
  const { processes, guest, entries } = services;
  return [
    execExtension(processes, guest, places),
    usageExtension({ ...entries, processes }, places, services.isFrozen),
    stopExtension(processes),
    lastingOutputExtension({ ...services, lanes: entries.lanes, places }, config, stopping),
    terminalExtension(processes, guest),
    portsExtension(new PortWatch(entries.users, entries.lanes), ownPort, places),
    createSearch({ ...services, streams }),
    archivesExtension(services),
    digestsExtension(),
    prometheusExtension(telemetry),
    createZip(entries.lanes),
    createAttributes(services),
    createCopy(services),
  ];
}

/** Prints what the guest can, instead of starting the daemon; see `doctor`. */
export async function runDoctor(config: Config): Promise<void> {
  const { doctor } = await import('../extensions/doctor/doctor.ts');
  await doctor(config, (cgroups) => extensionObstacles(cgroups, config), forwardingObstacle);
}

/** By the name of each extension, why this guest cannot have it, or null: what `/health?verbose` tells. */
export function extensionObstacles(
  { obstacle }: CgroupAbilities,
  config: Pick<Config, 'outputDirectory'>,
): Record<string, string | null> {
  const processes = {
    exec: null,
    limits: null,
    ndjson: null,
    usage: null,
    history: null,
    pressure: pressureObstacle(),
    stop: obstacle,
    keepOutput: lastingOutputObstacle(config),
  };
  return {
    ...processes,
    terminal: null,
    ports: null,
    search: null,
    zip: null,
    setAttributes: null,
    copy: null,
  };
}
