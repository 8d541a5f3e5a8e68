/** Calls `listener` when `signal` aborts, immediately if it has. Returns a function that removes the listener. */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener();
    return () => {};
  }
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}

/** Settles as `work` does. Throws the reason of `signal` if it aborts first. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const removeListener = onAbort(signal, () => reject(signal.reason));
  return Promise.race([work, aborted]).finally(removeListener);
}

/** Settles as `work` does, or after `milliseconds` as `late` does. The timer does not keep the process alive. */
export async function within<T>(
  milliseconds: number,
  work: Promise<T>,
  late: () => T | Promise<T>,
): Promise<T> {
  const { promise: limit, resolve } = Promise.withResolvers<T>();
  const timer = setTimeout(() => resolve((async () => late())()), milliseconds).unref();
  return Promise.race([work, limit]).finally(() => clearTimeout(timer));
}
