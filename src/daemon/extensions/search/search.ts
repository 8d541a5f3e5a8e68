import type { Extension } from '../../http/extension.ts';
import type { StreamServer } from '../../http/protocol/connect-stream.ts';
import type { WriteGate } from '../../services/pause/write-gate.ts';
import type { WorkloadCgroups } from '../../services/process/cgroups/cgroups.ts';
import { findStream } from './find-stream.ts';
import type { SearchSource } from './jobs.ts';
import { replaceRpc } from './replace-rpc.ts';
import { SearchProcesses } from './search-processes.ts';

export interface SearchDependencies extends SearchSource {
  readonly gate: WriteGate;
  readonly cgroups: WorkloadCgroups;
  readonly streams: StreamServer;
}

/** Adds `filesystem.Filesystem/Find` and `Replace`. */
export function createSearch({ guest, entries, gate, cgroups, streams }: SearchDependencies): Extension {
  const processes = new SearchProcesses(cgroups);
  const source = { guest, entries };
  return {
    rpcs: [streams.rpc(findStream(source, processes)), replaceRpc(source, gate, processes)],
  };
}
