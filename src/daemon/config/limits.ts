import {
  matching,
  parseBytes,
  parseCount,
  parseSeconds,
  type Setting,
  setting,
  wholeNumberFrom,
} from '../../base/program/settings.ts';
import { DEFAULT_LIMITS, type Weights, type WorkloadLimits } from '../services/process/cgroups/cgroups.ts';

const MIB = 1024 * 1024;

/** The limits of the daemon and of the workload, in the table of flags. */
export const LIMIT_SETTINGS: readonly Setting[] = [
  setting('--history-bytes <number>', 'bytes of output kept per process', parseBytes, MIB),
  setting('--unread-bytes <number>', 'bytes kept for slow readers of streams, in all', parseBytes, 64 * MIB),
  setting('--request-bytes <number>', 'bytes of requests under way, in all', parseBytes, 128 * MIB),
  setting('--max-connections <number>', 'most connections', parseCount, 4096),
  setting('--max-streams <number>', 'most open streams', parseCount, 2048),
  setting('--max-forwards <number>', 'most localhost listeners that are forwarded', parseCount, 1024),
  setting('--max-processes <number>', 'most running processes, without their descendants', parseCount, 1024),
  setting('--max-tasks <number>', 'most processes and threads in each cgroup of the workload', parseCount),
  setting('--start-timeout <seconds>', 'time until a started program must run', parseSeconds, 10),
  setting('--upgrade-timeout <seconds>', 'time for the trial of the program of an upgrade', parseSeconds, 30),
  setting('--file-timeout <seconds>', 'longest time that FUSE and NFS may take to answer', parseSeconds, 10),
  setting(
    '--max-memory <bytes>',
    'most memory of the workload; default: all but 128 MiB, or an eighth',
    wholeNumberFrom(1, 1e15 - 1, 'It must be a whole number of bytes.'),
  ),
  setting(
    '--cpu-weights <user,ptys>',
    'shares of processes and of terminals in scarce CPU; default: 50,200',
    parseWeights,
  ),
  setting('--io-weights <user,ptys>', 'the same for storage; default: 10,50', parseWeights),
];

/** The values of the workload's flags. */
export type WorkloadSettings = {
  readonly [Name in keyof WorkloadLimits]?: NonNullable<WorkloadLimits[Name]>;
};

export function workloadLimits({
  maxTasks = DEFAULT_LIMITS.maxTasks,
  maxMemory = DEFAULT_LIMITS.maxMemory,
  cpuWeights = DEFAULT_LIMITS.cpuWeights,
  ioWeights = DEFAULT_LIMITS.ioWeights,
}: { readonly [Name in keyof WorkloadLimits]?: WorkloadLimits[Name] | undefined }): WorkloadLimits {
  return { maxTasks, maxMemory, cpuWeights, ioWeights };
}

/** Those of cgroup v2: 1 to 10000. */
function parseWeights(text: string): Weights {
  const sentence = 'It must be two weights from 1 to 10000, as in 50,200.';
  const form = /^([1-9]\d{0,3}|10000),([1-9]\d{0,3}|10000)$/;
  const [user = 0, ptys = 0] = matching(form, sentence)(text).split(',').map(Number);
  return { user, ptys };
}
