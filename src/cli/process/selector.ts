import { create } from '@bufbuild/protobuf';
import { type ProcessSelector, ProcessSelectorSchema } from '../../gen/process/process_pb.js';
import type { Connection } from '../connection/connection.ts';
import { usageError } from '../output/failure.ts';

/**
 * Finds the process that a text names. A number is a pid, and anything else a tag; `tag:7` is the tag 7. Throws a `Failure` if
 * several processes have the tag.
 */
export async function findProcess(connection: Connection, text: string): Promise<ProcessSelector> {
  if (/^\d{1,10}$/.test(text) && Number(text) < 2 ** 32) return selectPid(Number(text));
  const value = text.startsWith('tag:') ? text.slice(4) : text;
  const { processes } = await connection.call((options) => connection.processes.list({}, options));
  const pids = processes.flatMap(({ tag, pid }) => (tag === value ? [pid] : []));
  const [pid, ...others] = pids;
  if (others.length > 0)
    throw usageError(
      `tag '${value}' is that of ${pids.length} processes, ${pids.join(', ')}: name one by its pid`,
    );
  if (pid !== undefined) return selectPid(pid);
  // The daemon knows the tags of processes that have just ended.
  return create(ProcessSelectorSchema, { selector: { case: 'tag', value } });
}

/** Returns the selector for a pid. */
export function selectPid(pid: number): ProcessSelector {
  return create(ProcessSelectorSchema, { selector: { case: 'pid', value: pid } });
}
