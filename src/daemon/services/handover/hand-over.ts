import type { Logger } from 'pino';
import { messageOf } from '../../../base/errors.ts';
import { closeAll } from '../../linux/memory/message-queue.ts';
import { childLimits, fromEarlierProgram, reapOthers } from '../../linux/processes/program.ts';
import type { StoredDescriptor } from '../../linux/system/systemd.ts';
import type { Guest } from '../guest/guest.ts';
import type { Init } from '../init/init.ts';
import type { Volumes } from '../init/volumes.ts';
import type { Forwards } from '../ports/forwards.ts';
import type { CgroupRoot } from '../process/cgroups/cgroup-root.ts';
import type { ProcessTable } from '../process/table.ts';
import type { RecordStore } from '../records/record-store.ts';
import type { PolledWatches } from '../watch/polled.ts';
import { type RecordContent, recover } from './recovery.ts';
import type { ExtensionState, HandedOverPart, Handover, Settings, Snapshot } from './state.ts';

export interface HandedOver {
  readonly guest: Guest;
  readonly init: Init;
  readonly volumes: Volumes;
  readonly polled: PolledWatches;
  readonly processes: ProcessTable;
  readonly records: RecordStore;
  readonly ports: Forwards;
  readonly root: CgroupRoot | null;
  readonly parts: readonly HandedOverPart[];
}

/**
 * Returns the state for a later program of this process, which inherits `listener`. All other descriptors stay this
 * program's.
 */
export function snapshotOf(services: HandedOver, listener: number): Snapshot {
  const { guest, init, volumes, polled, processes, records, ports, root, parts } = services;
  return {
    guest: guest.state,
    initTimestamp: init.timestampNs?.toString() ?? null,
    volumes: volumes.state,
    listener,
    watches: polled.state,
    limits: childLimits(),
    processes: processes.state,
    records: records.queues,
    forwards: ports.handOver(),
    cgroupRoot: root ?? undefined,
    extensions: parts.flatMap(({ states }) => states),
  };
}

/**
 * Takes over from an earlier program of this process, or from a daemon that was killed and whose records the service manager
 * has kept, if there was one. Records the settings from now on.
 */
export function continueFromEarlier(
  services: HandedOver,
  inherited: Handover | null,
  stored: readonly StoredDescriptor[],
  logger: Logger,
): void {
  if (inherited) takeOver(services, inherited, logger);
  else if (stored.length > 0) recoverFrom(services, stored, logger);
  else keepSettings(services);
}

function takeOver(services: HandedOver, state: Handover, logger: Logger): void {
  const all = state.processes.processes;
  reapOthers(new Set(all.map(({ pid }) => pid)));
  continueWith(services, state);
  services.processes.takeOver(state.processes);
  continueParts(services.parts, state.extensions);
  keepSettings(services);
  services.records.discard(state.records);
  void services.polled.continueFrom(state.watches, (path, error) =>
    logger.warn(
      { path, reason: messageOf(error) },
      'cannot continue a watch after the upgrade: create it again',
    ),
  );
  const exits = all.filter(({ end }) => end !== null).length;
  services.init.keepHandover({
    build: state.build,
    processes: all.length - exits,
    exits,
    watchers: state.watches.length,
    volumes: state.volumes.length,
    forwards: state.forwards.forwards.length,
  });
  logger.info({ processes: all.length }, 'took over the processes of the earlier program');
}

function recoverFrom(services: HandedOver, stored: readonly StoredDescriptor[], logger: Logger): void {
  const own = stored.map(({ name, descriptor }) => ({ name, descriptor: fromEarlierProgram(descriptor) }));
  const found = recover(services.records, own);
  for (const reason of found.refused)
    logger.error(
      { reason },
      'cannot take over a record of an earlier daemon: its process is unknown to this one',
    );
  if (found.settings) continueWith(services, found.settings);
  services.processes.takeOver(found.processes);
  continueParts(services.parts, found.extensions);
  keepSettings(services);
  found.forget();
  const processes = found.processes.processes.length;
  logger.warn({ processes }, 'recovered the processes of a daemon that has ended');
}

function continueWith(services: HandedOver, { guest, initTimestamp, volumes }: Settings): void {
  services.guest.continueFrom(guest);
  services.init.continueFrom(initTimestamp === null ? null : BigInt(initTimestamp));
  services.volumes.continueFrom(volumes);
}

function continueParts(parts: readonly HandedOverPart[], states: readonly ExtensionState[]): void {
  for (const state of states) {
    const part = parts.find(({ extension }) => extension === state.extension);
    if (part) part.continueFrom(state);
    else closeAll(state.descriptors);
  }
}

/** Records the settings now, and again whenever a call of `init` has changed them. */
function keepSettings({ guest, init, volumes, records }: HandedOver): void {
  if (!records.isActive) return;
  const record = records.record();
  let kept = '';
  const keep = () => {
    const initTimestamp = init.timestampNs?.toString() ?? null;
    const settings: Settings = { guest: guest.state, initTimestamp, volumes: volumes.state };
    const text = JSON.stringify(settings);
    if (text !== kept) record.set({ about: 'settings', ...settings } satisfies RecordContent);
    kept = text;
  };
  init.on('progress', keep);
  keep();
}
