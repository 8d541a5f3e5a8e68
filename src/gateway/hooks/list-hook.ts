import { SANDBOX_ID } from '../leases/sandbox.ts';
import { type AskOptions, askHook, refusal } from './ask.ts';

/** A list may have this many bytes. */
const LIST_LIMIT = 16 * 1024 ** 2;
const QUESTION = { event: 'list' } as const;

/**
 * Asks which machines exist, running or paused. Returns the ids of their sandboxes. Throws `failed_precondition` or
 * `unavailable` for a list that is not complete, because a machine that is missing from a list seems to be lost.
 */
export async function listMachines(options: AskOptions, signal: AbortSignal): Promise<ReadonlySet<string>> {
  const text = await askHook(options, QUESTION, LIST_LIMIT, signal);
  const ids = text.split('\n').flatMap((line) => line.trim() || []);
  const malformed = ids.find((id) => !SANDBOX_ID.test(id));
  if (malformed === undefined) return new Set(ids);
  throw refusal(QUESTION, `a line must be the id of a sandbox, not '${malformed.slice(0, 64)}'`);
}
