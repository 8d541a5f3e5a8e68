/**
 * Calls `listener` once when `signal` aborts, at once if it has already. Returns what removes the listener:
 * a signal may outlive its many users.
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener();
    return () => {};
  }
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}
