import { create } from '@bufbuild/protobuf';
import { type ProcessSelector, ProcessSelectorSchema } from '../../gen/process/process_pb.js';

/** How people name a process: a number is a pid, anything else a tag; `tag:7` is the tag 7. */
export function readSelector(text: string): ProcessSelector {
  if (/^\d{1,10}$/.test(text) && Number(text) < 2 ** 32) return selectPid(Number(text));
  const value = text.startsWith('tag:') ? text.slice(4) : text;
  return create(ProcessSelectorSchema, { selector: { case: 'tag', value } });
}

/** A process by its pid. */
export function selectPid(pid: number): ProcessSelector {
  return create(ProcessSelectorSchema, { selector: { case: 'pid', value: pid } });
}
