/**
 * Removes a tree by repeated calls of `removeSome`, which calls `native.removeTree` in a lane and returns 0 until it is
 * done. The steps let other calls have their turn, and at most one of them goes on after `signal` has aborted.
 */
export async function removeTree(removeSome: () => Promise<0 | 1>, signal?: AbortSignal): Promise<void> {
  do signal?.throwIfAborted();
  while ((await removeSome()) === 0);
}
