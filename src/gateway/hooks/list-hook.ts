import { SANDBOX_ID } from '../leases/sandbox.ts';
import { type AskOptions, askHook, refusal } from './ask.ts';

/** A list may have this many bytes. */
const LIST_LIMIT = 16 * 1024 ** 2;
const QUESTION = { event: 'list' } as const;
/** A line about a machine that has ended by itself. */
const ENDED = /^(\S+)\s+ended:(.*)$/s;
/** Clients and readers of events are told this many characters of a reason. */
const REASON_LENGTH = 200;

/** Which machines exist, and which have ended by themselves, as far as it is known, with the reason. They are named by their sandboxes. */
export interface MachineList {
  readonly ids: ReadonlySet<string>;
  readonly ended: ReadonlyMap<string, string>;
}

/**
 * Asks which machines exist, running or paused. Throws `failed_precondition` or `unavailable` for a list that is not complete, because a
 * machine that is missing from a list seems to be lost.
 */
export async function listMachines(options: AskOptions, signal: AbortSignal): Promise<MachineList> {
  const text = await askHook(options, QUESTION, LIST_LIMIT, signal);
  const ids = new Set<string>();
  const ended = new Map<string, string>();
  for (const line of text.split('\n').flatMap((each) => each.trim() || [])) {
    const [, id = line, reason] = ENDED.exec(line) ?? [];
    if (!SANDBOX_ID.test(id))
      throw refusal(QUESTION, `a line must be the id of a sandbox, not '${line.slice(0, 64)}'`);
    if (reason === undefined) ids.add(id);
    else ended.set(id, printable(reason) || 'the reason is not known');
  }
  return { ids, ended };
}

function printable(text: string): string {
  return text
    .trim()
    .slice(0, REASON_LENGTH)
    .replace(/[^\x20-\x7e]/g, '?');
}
