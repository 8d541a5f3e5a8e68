import { matching, parseBytes, parseCount, parseSeconds, type Setting } from '../base/settings.ts';
import { DEFAULT_LIMITS, type Weights, type WorkloadLimits } from './services/process/cgroups.ts';

/** The limits of the daemon and of the workload, in the table of flags. */
export const LIMIT_SETTINGS: readonly Setting[] = [
  {
    ...{ flags: '--history-bytes <number>', help: 'bytes of output kept per process' },
    ...{ parse: parseBytes, defaultValue: 1024 * 1024 },
  },
  {
    ...{ flags: '--unread-bytes <number>', help: 'bytes kept for slow readers of streams, in all' },
    ...{ parse: parseBytes, defaultValue: 64 * 1024 * 1024 },
  },
  {
    ...{ flags: '--request-bytes <number>', help: 'bytes of requests under way, in all' },
    ...{ parse: parseBytes, defaultValue: 128 * 1024 * 1024 },
  },
  {
    ...{ flags: '--max-connections <number>', help: 'most connections' },
    ...{ parse: parseCount, defaultValue: 4096 },
  },
  {
    ...{ flags: '--max-streams <number>', help: 'most open streams' },
    ...{ parse: parseCount, defaultValue: 2048 },
  },
  {
    ...{ flags: '--max-forwards <number>', help: 'most localhost listeners that are forwarded' },
    ...{ parse: parseCount, defaultValue: 1024 },
  },
  {
    ...{ flags: '--max-processes <number>', help: 'most running processes, without their descendants' },
    ...{ parse: parseCount, defaultValue: 1024 },
  },
  {
    flags: '--max-tasks <number>',
    help: 'most processes and threads in each cgroup of the workload',
    parse: parseCount,
  },
  {
    ...{ flags: '--start-timeout <seconds>', help: 'time until a started program must run' },
    ...{ parse: parseSeconds, defaultValue: 10 },
  },
  {
    ...{ flags: '--upgrade-timeout <seconds>', help: 'time for the trial of the program of an upgrade' },
    ...{ parse: parseSeconds, defaultValue: 30 },
  },
  {
    ...{ flags: '--file-timeout <seconds>', help: 'longest time that FUSE and NFS may take to answer' },
    ...{ parse: parseSeconds, defaultValue: 10 },
  },
  {
    flags: '--max-memory <bytes>',
    help: 'most memory of the workload; default: all but 128 MiB, or an eighth',
    parse: (text) => Number(matching(/^[1-9]\d{0,14}$/, 'It must be a whole number of bytes.')(text)),
  },
  {
    flags: '--cpu-weights <user,ptys>',
    help: 'shares of processes and of terminals in scarce CPU; default: 50,200',
    parse: parseWeights,
  },
  { flags: '--io-weights <user,ptys>', help: 'the same for storage; default: 10,50', parse: parseWeights },
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
