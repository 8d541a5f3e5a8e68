/**
 * Removes a tree by `removeSome`, which calls `native.removeTree` in a lane: in steps, so that other calls get their turn, and
 * so that no more than one of them goes on after `signal` has aborted.
 */
export async function removeTree(removeSome: () => Promise<0 | 1>, signal?: AbortSignal): Promise<void> {
  do signal?.throwIfAborted();
  while ((await removeSome()) === 0);
}
