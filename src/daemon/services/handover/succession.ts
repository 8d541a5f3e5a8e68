import type { Logger } from 'pino';
import { messageOf } from '../../../base/errors.ts';
import type { RecordStore } from '../../linux/memory/record-store.ts';
import { childLimits, fromEarlierProgram, reapOthers } from '../../linux/processes/program.ts';
import type { StoredDescriptor } from '../../linux/system/systemd.ts';
import type { Guest } from '../guest/guest.ts';
import type { Init } from '../init/init.ts';
import type { Volumes } from '../init/volumes.ts';
import type { Forwards } from '../ports/forwards.ts';
import type { CgroupRoot } from '../process/cgroups/cgroup-root.ts';
import type { ProcessTable } from '../process/table.ts';
import type { PolledWatches } from '../watch/polled.ts';
import { recover, SettingsRecord } from './recovery.ts';
import type { Handover, Settings, Snapshot } from './state.ts';

/** The services whose state goes from one daemon to the next. */
export interface Heirs {
  readonly guest: Guest;
  readonly init: Init;
  readonly volumes: Volumes;
  readonly polled: PolledWatches;
  readonly processes: ProcessTable;
  readonly records: RecordStore;
  readonly ports: Forwards;
  /** Null without cgroups. */
  readonly root: CgroupRoot | null;
}

/** How the state of all services goes from one daemon to the next. */
export class Succession {
  readonly #heirs: Heirs;
  readonly #logger: Logger;

  constructor(heirs: Heirs, logger: Logger) {
    this.#heirs = heirs;
    this.#logger = logger;
  }

  /**
   * Continues for an earlier program of this process, or for a daemon that was killed and whose records the service manager has
   * kept, if there was one; records the settings from now on.
   */
  begin(inherited: Handover | null, stored: readonly StoredDescriptor[]): void {
    if (inherited) this.#takeOver(inherited);
    else if (stored.length > 0) this.#recover(stored);
    else this.#keepSettings();
  }

  /** The state for a later program of this process, which inherits `listener`; other descriptors stay this program's. */
  snapshot(listener: number): Snapshot {
    const { guest, init, volumes, polled, processes, records, ports, root } = this.#heirs;
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
      cgroupRoot: root?.state,
    };
  }

  #takeOver(state: Handover): void {
    const { init, processes, polled, records } = this.#heirs;
    const all = state.processes.processes;
    reapOthers(new Set(all.map(({ pid }) => pid)));
    this.#continueWith(state);
    processes.takeOver(state.processes);
    this.#keepSettings();
    records.discard(state.records);
    void polled.continueFrom(state.watches, (path, error) =>
      this.#logger.warn({ path, reason: messageOf(error) }, 'cannot watch it any more'),
    );
    const exits = all.filter(({ end }) => end !== null).length;
    init.handover = {
      build: state.build,
      processes: all.length - exits,
      exits,
      watchers: state.watches.length,
      volumes: state.volumes.length,
      forwards: state.forwards.forwards.length,
    };
    this.#logger.info({ processes: all.length }, 'taken over');
  }

  #recover(stored: readonly StoredDescriptor[]): void {
    const own = stored.map(({ name, descriptor }) => ({ name, descriptor: fromEarlierProgram(descriptor) }));
    const found = recover(this.#heirs.records, own);
    for (const reason of found.refused) this.#logger.error({ reason }, 'cannot take over a record');
    if (found.settings) this.#continueWith(found.settings);
    this.#heirs.processes.takeOver(found.processes);
    this.#keepSettings();
    found.forget();
    const processes = found.processes.processes.length;
    this.#logger.warn({ processes }, 'recovered after the end of another daemon');
  }

  #continueWith({ guest, initTimestamp, volumes }: Settings): void {
    this.#heirs.guest.continueFrom(guest);
    this.#heirs.init.continueFrom(initTimestamp === null ? null : BigInt(initTimestamp));
    this.#heirs.volumes.continueFrom(volumes);
  }

  /** Records the settings now, and when a call of `init` may have changed them. */
  #keepSettings(): void {
    const { guest, init, volumes, records } = this.#heirs;
    if (!records.isActive) return;
    const record = new SettingsRecord(records);
    const keep = () => record.set({ guest: guest.state, volumes: volumes.state }, init.timestampNs);
    init.on('progress', keep);
    keep();
  }
}
