/** Calls `listener` when `signal` aborts, or now if it has aborted. Returns a function that removes the listener. */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener();
    return () => {};
  }
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}

export interface AbortListener {
  abort(reason: unknown): void;
  /** The relay sets this to the listener's position in it; it is -1 while the listener is in no relay. */
  index: number;
}

/**
 * Passes the abort of one signal on to many listeners that come and go, because an AbortSignal is slow to add and to remove
 * one. It keeps them in an array. In a Set, V8 links each table to the next one, so that one dead table in the old generation
 * would keep all later tables alive, with all listeners in them (docs/decisions/014-memory.md).
 */
export class AbortRelay {
  readonly signal: AbortSignal;
  readonly #listeners: AbortListener[] = [];

  constructor(signal: AbortSignal) {
    this.signal = signal;
    onAbort(signal, () => {
      for (const listener of [...this.#listeners]) listener.abort(signal.reason);
    });
  }

  /** Calls `listener.abort` with the reason when the signal aborts, or now if it has aborted. */
  add(listener: AbortListener): void {
    if (this.signal.aborted) listener.abort(this.signal.reason);
    else listener.index = this.#listeners.push(listener) - 1;
  }

  /** Removes a listener; the last one moves to the free place. */
  remove(listener: AbortListener): void {
    const { index } = listener;
    if (index < 0) return;
    listener.index = -1;
    const last = this.#listeners.pop();
    if (last === undefined || last === listener) return;
    this.#listeners[index] = last;
    last.index = index;
  }
}

/** Settles as `work` does. Throws the reason of `signal` if it aborts first. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const removeListener = onAbort(signal, () => reject(signal.reason));
  return Promise.race([work, aborted]).finally(removeListener);
}

/** Settles as `work` does, or as `late` does if `milliseconds` pass before. The timer does not keep the process alive. */
export async function within<T>(
  milliseconds: number,
  work: Promise<T>,
  late: () => T | Promise<T>,
): Promise<T> {
  const { promise: limit, resolve } = Promise.withResolvers<T>();
  const timer = setTimeout(() => resolve((async () => late())()), milliseconds).unref();
  return Promise.race([work, limit]).finally(() => clearTimeout(timer));
}

/**
 * Calls `work` with a signal that aborts when `signal` does, or after `milliseconds` with a `TimeoutError`, and settles as `work`
 * does. It leaves no timer behind, unlike `AbortSignal.timeout`, whose timer would expire after a resume.
 */
export async function limited<T>(
  milliseconds: number,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const limit = new AbortController();
  const removeListener = onAbort(signal, () => limit.abort(signal.reason));
  const expire = () => limit.abort(new DOMException(`no answer within ${milliseconds} ms`, 'TimeoutError'));
  const timer = setTimeout(expire, milliseconds).unref();
  try {
    return await work(limit.signal);
  } finally {
    clearTimeout(timer);
    removeListener();
  }
}

/** Resolves when `work` has resolved, or in the next turn of the event loop if that comes first. `work` must not reject. */
export function waitOneTurnFor(work: Promise<unknown>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const turn = setImmediate(resolve);
  void work.then(() => {
    clearImmediate(turn);
    resolve();
  });
  return promise;
}
