import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** How the processes in a cgroup and below use memory. A member is null when the kernel does not tell. */
export interface WorkloadMemory {
  readonly bytes: number | null;
  /** For how long at least one task was waiting for memory. */
  readonly stalledMicros: number | null;
  readonly kills: number | null;
}

/** Reads the figures. Source: Documentation/admin-guide/cgroup-v2.rst, Documentation/accounting/psi.rst. */
export function workloadMemory(cgroup: string): WorkloadMemory {
  const figure = (file: string, form: RegExp) => {
    const digits = form.exec(readIfPresent(join(cgroup, file)))?.[1];
    return digits === undefined ? null : Number(digits);
  };
  return {
    bytes: figure('memory.current', /^(\d+)$/m),
    stalledMicros: figure('memory.pressure', /^some .*total=(\d+)$/m),
    kills: figure('memory.events', /^oom_kill (\d+)$/m),
  };
}

/** Returns an empty text without the controller, without pressure stall information, and when the cgroup was removed. */
function readIfPresent(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
