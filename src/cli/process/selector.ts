import { create } from '@bufbuild/protobuf';
import { type ProcessSelector, ProcessSelectorSchema } from '../../gen/process/process_pb.js';

/** Parses the name of a process. A number is a pid, and anything else a tag; `tag:7` is the tag 7. */
export function readSelector(text: string): ProcessSelector {
  if (/^\d{1,10}$/.test(text) && Number(text) < 2 ** 32) return selectPid(Number(text));
  const value = text.startsWith('tag:') ? text.slice(4) : text;
  return create(ProcessSelectorSchema, { selector: { case: 'tag', value } });
}

/** Returns the selector for a pid. */
export function selectPid(pid: number): ProcessSelector {
  return create(ProcessSelectorSchema, { selector: { case: 'pid', value: pid } });
}
