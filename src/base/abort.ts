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

/** What `work` settles with, unless `signal` aborts first: then its reason is thrown. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const forget = onAbort(signal, () => reject(signal.reason));
  return Promise.race([work, aborted]).finally(forget);
}

/**
 * What `work` settles with, unless it takes longer than `milliseconds`: then what `late` returns, or throws. Waiting keeps
 * no process alive.
 */
export async function within<T>(
  milliseconds: number,
  work: Promise<T>,
  late: () => T | Promise<T>,
): Promise<T> {
  const { promise: limit, resolve } = Promise.withResolvers<T>();
  const timer = setTimeout(() => resolve((async () => late())()), milliseconds).unref();
  return Promise.race([work, limit]).finally(() => clearTimeout(timer));
}
