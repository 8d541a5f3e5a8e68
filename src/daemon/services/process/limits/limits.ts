import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { EnvdError, type ErrorKind, isSystemError } from '../../../../base/errors.ts';
import { closed, integer, type Shape, type ValuesOf } from '../../../../base/shape.ts';
import { CGROUP_MODE, Cgroup, hasVanished } from '../../../linux/cgroups/cgroup2.ts';
import { NoCgroup } from '../../../linux/processes/spawn.ts';
import { exhaustionOf } from '../../../linux/system/errno.ts';
import { MOST_TASKS } from '../cgroups/cgroups.ts';

const MOST_BYTES = Number.MAX_SAFE_INTEGER;
/** The quota of CPU time is for this period, in microseconds, which is the kernel's default. */
const PERIOD_MICROS = 100_000;

const MEMBERS = {
  memoryBytes: integer(1, MOST_BYTES, null),
  cpuWeight: integer(1, 10_000, null),
  cpuPercent: integer(1, 1_000_000, null),
  tasks: integer(1, MOST_TASKS, null),
  openFiles: integer(1, 0x7fffffff, null),
  fileBytes: integer(1, MOST_BYTES, null),
  nice: integer(0, 19, null),
};

/** What one command may take. A member is null if it has no limit of its own. */
export type ProcessLimits = ValuesOf<typeof MEMBERS>;

const SHAPE = closed(MEMBERS);

/** The limits that a client asks for; null if there are none. */
export const LIMITS: Shape<ProcessLimits | null> = {
  schema: SHAPE.schema,
  read(value, name) {
    if (value === undefined || value === null) return null;
    const limits = SHAPE.read(value, name);
    return Object.values(limits).some((limit) => limit !== null) ? limits : null;
  },
};

interface Setting {
  readonly limit: keyof ProcessLimits;
  readonly controller: 'cpu' | 'memory' | 'pids';
  readonly file: string;
  readonly value: string;
}

/** Returns what the limits are in the files of a cgroup. Source: Documentation/admin-guide/cgroup-v2.rst. */
function settingsOf({ memoryBytes, cpuWeight, cpuPercent, tasks }: ProcessLimits): Setting[] {
  const settings: Setting[] = [];
  const add = (limit: Setting['limit'], controller: Setting['controller'], file: string, value: string) =>
    settings.push({ limit, controller, file, value });
  if (memoryBytes !== null) add('memoryBytes', 'memory', 'memory.max', String(memoryBytes));
  if (cpuWeight !== null) add('cpuWeight', 'cpu', 'cpu.weight', String(cpuWeight));
  if (cpuPercent !== null)
    add('cpuPercent', 'cpu', 'cpu.max', `${(cpuPercent * PERIOD_MICROS) / 100} ${PERIOD_MICROS}`);
  if (tasks !== null) add('tasks', 'pids', 'pids.max', String(tasks));
  return settings;
}

/**
 * Creates the cgroup of a process with its limits, before the process is in it. `path` is null if the process gets none. The
 * controllers are enabled for all cgroups beside it, and only when the first limit needs them, because each costs a little. Throws
 * `failed_precondition` for a limit that cannot be kept, the kind of what is exhausted, and `NoCgroup` if the cgroup above does not exist.
 */
export function makeLimitedCgroup(path: string | null, limits: ProcessLimits): void {
  const settings = settingsOf(limits);
  const [first] = settings;
  if (path !== null) limit(new Cgroup(path), limits, settings);
  else if (first) throw refusal(first, 'it has no cgroup of its own');
}

function limit(cgroup: Cgroup, { memoryBytes, cpuWeight, nice }: ProcessLimits, settings: Setting[]): void {
  const [first] = settings;
  try {
    if (first)
      new Cgroup(dirname(cgroup.path)).enableControllers(settings.map(({ controller }) => controller));
    mkdirSync(cgroup.path, CGROUP_MODE);
    for (const setting of settings)
      if (!cgroup.setLimit(setting.file, setting.value))
        throw refusal(setting, `cgroup v2 has no controller ${setting.controller} here`);
    // With swap, the limit would slow the command down instead of ending it. If the kernel killed one process alone, the others
    // would go on, and the end of the command would not say why.
    if (memoryBytes !== null) {
      cgroup.setLimit('memory.swap.max', '0');
      cgroup.setLimit('memory.oom.group', '1');
    }
    // Where each command has a share of the CPU time, the nice value counts only within the command.
    if (nice !== null && cpuWeight === null) cgroup.setLimit('cpu.weight.nice', String(nice));
  } catch (error) {
    if (hasVanished(error)) throw new NoCgroup('unavailable', 'cannot start a process: its cgroup is gone');
    throw first && isSystemError(error) ? refusal(first, error.message, exhaustionOf(error)) : error;
  }
}

function refusal(setting: Setting, reason: string, kind: ErrorKind | null = null): EnvdError {
  const text = `cannot start a process with limits.${setting.limit}: ${reason}`;
  return new EnvdError(kind ?? 'failed_precondition', text);
}
