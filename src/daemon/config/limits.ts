import {
  matching,
  parseBytes,
  parseCount,
  parsePath,
  parseWait,
  type Setting,
  setting,
  wholeNumberFrom,
} from '../../base/program/settings.ts';
import { DEFAULT_LIMITS, type Weights, type WorkloadLimits } from '../services/process/cgroups/cgroups.ts';

const MIB = 1024 * 1024;

/** What the daemon keeps and serves at most, over all clients. */
export const DAEMON_LIMITS: readonly Setting[] = [
  setting('--max-connections <number>', 'maximum number of connections', parseCount, 4096),
  setting('--max-streams <number>', 'maximum number of open streams', parseCount, 2048),
  setting('--max-forwards <number>', 'maximum number of forwarded localhost listeners', parseCount, 1024),
  setting(
    '--request-bytes <number>',
    'memory for all requests that are being handled',
    parseBytes,
    128 * MIB,
  ),
  setting(
    '--unread-bytes <number>',
    'memory for all output that slow readers have not read',
    parseBytes,
    64 * MIB,
  ),
  setting('--history-bytes <number>', 'output kept per process, for clients that reconnect', parseBytes, MIB),
  setting(
    '--output-directory <path>',
    'directory on a local disk that keeps output (keep_output); default: none is kept',
    parsePath,
  ),
  setting(
    '--output-bytes <number>',
    'output kept in --output-directory, for all processes together',
    wholeNumberFrom(1, 1e15 - 1, 'It must be a whole number of bytes.'),
    1024 * MIB,
  ),
  setting('--file-timeout <seconds>', 'time limit for one request to a FUSE or NFS server', parseWait, 10),
];

/** What the processes of clients may use. */
export const WORKLOAD_LIMITS: readonly Setting[] = [
  setting(
    '--max-processes <number>',
    'maximum number of running processes, not counting descendants',
    parseCount,
    1024,
  ),
  setting('--max-tasks <number>', 'maximum number of processes and threads in each cgroup', parseCount),
  setting(
    '--max-memory <bytes>',
    'maximum memory; default: all but 160 MiB (a sixth below 960 MiB) and what the kernel keeps free',
    wholeNumberFrom(1, 1e15 - 1, 'It must be a whole number of bytes.'),
  ),
  setting(
    '--cpu-weights <user,ptys>',
    'CPU weights of commands and of terminals, used when CPU is scarce; default: 50,200',
    parseWeights,
  ),
  setting(
    '--io-weights <user,ptys>',
    'I/O weights of commands and of terminals, used when storage is busy; default: 10,50',
    parseWeights,
  ),
  setting('--start-timeout <seconds>', 'time limit for a program to start running', parseWait, 10),
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

/** Reads two weights of cgroup v2, which are numbers from 1 to 10000. */
function parseWeights(text: string): Weights {
  const sentence = 'It must be two weights from 1 to 10000, as in 50,200.';
  const form = /^([1-9]\d{0,3}|10000),([1-9]\d{0,3}|10000)$/;
  const [user = 0, ptys = 0] = matching(form, sentence)(text).split(',').map(Number);
  return { user, ptys };
}
