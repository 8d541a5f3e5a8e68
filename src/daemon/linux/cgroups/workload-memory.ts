import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** What the workload in a cgroup and below does with memory; null: the kernel does not tell. */
export interface WorkloadMemory {
  readonly bytes: number | null;
  /** For how long some tasks have waited for memory. */
  readonly stalledMicros: number | null;
  /** Out-of-memory kills. */
  readonly kills: number | null;
}

/** Source: Documentation/admin-guide/cgroup-v2.rst, Documentation/accounting/psi.rst. */
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

/** Empty without the controller, without pressure stall information, and when the cgroup has been removed. */
function readIfPresent(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
