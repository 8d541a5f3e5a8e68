import { expect } from 'vitest';
import { awakeMs, loopCpuMsOf } from '../machine/proc.ts';

/**
 * Asks a daemon for its health again and again while `work` is done. Returns the longest that an answer waited for the event
 * loop, in milliseconds of its CPU time: what else the machine does adds to the time that passes, and not to this one. While the
 * asker itself runs, or waits for a processor, the loop may go on with other things, so that time does not count.
 */
export async function longestBeside(
  { url, pid }: { readonly url: string; readonly pid: number },
  work: Promise<unknown>,
): Promise<number> {
  let isDone = false;
  const done = work.finally(() => {
    isDone = true;
  });
  let longest = 0;
  do {
    const awake = awakeMs();
    const before = loopCpuMsOf(pid);
    expect((await fetch(`${url}/health`)).status).toBe(204);
    const waited = loopCpuMsOf(pid) - before;
    longest = Math.max(longest, waited - (awakeMs() - awake));
  } while (!isDone);
  await done;
  return longest;
}
