import type { Extension } from '../../http/extension.ts';
import type { StreamPlaces } from '../../http/protocol/stream-places.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import type { WriteGate } from '../../services/pause/write-gate.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import type { RecordStore } from '../../services/records/record-store.ts';
import { Disk, NO_DIRECTORY } from './disk.ts';
import { LastingOutputs } from './lasting-outputs.ts';
import { outputRoutes } from './routes.ts';

interface LastingServices {
  readonly processes: ProcessTable;
  readonly records: RecordStore;
  readonly lanes: Lanes;
  readonly gate: WriteGate;
  readonly places: StreamPlaces;
}

interface LastingOptions {
  /** The directory whose file system has the output; null: none is kept. */
  readonly outputDirectory: string | null;
  /** The most bytes that are kept of all processes together. */
  readonly outputBytes: number;
}

/** Returns why no output lasts, or null. */
export function lastingOutputObstacle({
  outputDirectory,
}: Pick<LastingOptions, 'outputDirectory'>): string | null {
  return outputDirectory === null ? NO_DIRECTORY : null;
}

/** Adds `keep_output` to Start, and routes that read the output and the end of a process for long after its end. */
export function lastingOutputExtension(
  { processes, records, lanes, gate, places }: LastingServices,
  { outputDirectory, outputBytes }: LastingOptions,
  stopping: AbortSignal,
): Extension {
  const disk = new Disk(outputDirectory, lanes, gate);
  const outputs = new LastingOutputs(processes, records, disk, outputBytes, stopping);
  return {
    keepsOutput: (wanted, isTerminal) => outputs.prepare(wanted, isTerminal),
    handedOver: outputs,
    addRoutes: (app) => outputRoutes(app, outputs, places),
  };
}
