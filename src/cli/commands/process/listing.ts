import { ListScope, type ProcessInfo } from '../../../gen/process/process_pb.js';
import type { Connection } from '../../connection/connection.ts';
import { Failure } from '../../output/failure.ts';

/**
 * Lists the processes that clients have started, or every process of the guest, with what they use on request. Asks until no process
 * is left out. Throws `Failure`, also when
 * the daemon does not tell what is asked for.
 */
export async function listProcesses(
  connection: Connection,
  { all, usage }: { readonly all: boolean; readonly usage: boolean | 'if told' },
): Promise<ProcessInfo[]> {
  const processes: ProcessInfo[] = [];
  const scope = all ? ListScope.GUEST : ListScope.UNSPECIFIED;
  for (let afterPid = 0; ; ) {
    const request = { scope, usage: usage !== false, afterPid };
    const answer = await connection.call((options) => connection.processes.list(request, options));
    processes.push(...answer.processes);
    const last = answer.processes.at(-1);
    if (!answer.truncated || !last || last.pid <= afterPid) break;
    afterPid = last.pid;
  }
  const { name } = connection.target;
  if (all && processes.every(({ state }) => state === undefined))
    throw new Failure('failed', `${name} does not list the processes of the guest`);
  if (usage === true && processes.length > 0 && processes.every((process) => process.usage === undefined))
    throw new Failure('failed', `${name} does not tell what processes use`);
  return processes;
}

/** Returns the CPU time of a process, in microseconds. */
export function cpuMicrosOf({ usage }: ProcessInfo): number {
  return Number((usage?.userMicros ?? 0n) + (usage?.systemMicros ?? 0n));
}
