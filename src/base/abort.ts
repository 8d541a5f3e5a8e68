/** Calls `listener` when `signal` aborts, immediately if it has. Returns a function that removes the listener. */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener();
    return () => {};
  }
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}

/**
 * Passes the abort of one signal on to many listeners that come and go: an AbortSignal takes microseconds to add and to
 * remove one.
 */
export class AbortRelay {
  readonly signal: AbortSignal;
  readonly #listeners = new Set<(reason: unknown) => void>();

  constructor(signal: AbortSignal) {
    this.signal = signal;
    onAbort(signal, () => {
      for (const listener of this.#listeners) listener(signal.reason);
    });
  }

  /** Calls `listener` with the reason when the signal aborts, immediately if it has. */
  add(listener: (reason: unknown) => void): void {
    if (this.signal.aborted) listener(this.signal.reason);
    else this.#listeners.add(listener);
  }

  remove(listener: (reason: unknown) => void): void {
    this.#listeners.delete(listener);
  }
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
