import type { Connection } from '../../connection/connection.ts';
import { askState } from '../../connection/daemon-state.ts';
import { Failure } from '../../output/failure.ts';
import type { OptionSpec } from '../spec/description.ts';
import { parseCpus, parseSize, parseWhole } from '../spec/parsers.ts';
import type { StartCall } from './start.ts';

/** What one command may take. */
export interface LimitOptions {
  readonly memory?: number;
  readonly cpus?: number;
  readonly pids?: number;
  readonly nofile?: number;
  readonly nice?: number;
}

export const LIMIT_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--memory <size>',
    help: 'kill the process and all below it when they take more memory, such as 512M',
    parse: parseSize,
  },
  { flags: '--cpus <number>', help: 'the CPU time of all together, such as 0.5 or 2', parse: parseCpus },
  {
    flags: '--pids <number>',
    help: 'the most processes and threads of all together',
    parse: parseWhole(1, 4_194_304),
  },
  {
    flags: '--nofile <number>',
    help: 'the most open files of each process',
    parse: parseWhole(1, 0x7fffffff),
  },
  { flags: '--nice <number>', help: 'the nice value, from 0 to 19', parse: parseWhole(0, 19) },
];

/**
 * Returns the member of a start for these options. Throws `Failure` when the daemon does not know limits, because it would ignore
 * them.
 */
export async function chosenLimits(
  connection: Connection,
  { memory, cpus, pids, nofile, nice }: LimitOptions,
): Promise<Pick<StartCall, 'limits'>> {
  const limits = {
    ...(memory !== undefined && { memoryBytes: BigInt(memory) }),
    ...(cpus !== undefined && { cpuPercent: cpus }),
    ...(pids !== undefined && { tasks: pids }),
    ...(nofile !== undefined && { openFiles: nofile }),
    ...(nice !== undefined && { nice }),
  };
  if (Object.keys(limits).length === 0) return {};
  const { abilities } = await askState(connection);
  if (abilities.limits?.available) return { limits };
  throw new Failure('failed', `${connection.target.name} does not offer limits of a process`);
}
