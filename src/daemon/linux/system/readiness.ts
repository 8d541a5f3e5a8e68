import { onAbort } from '../../../base/abort.ts';
import { native } from './native.ts';

/** `native.pollDescriptor` waits for, and reports, a sum of the first three. FAILED and CLOSE stand alone. */
export const READABLE = 1;
export const WRITABLE = 2;
export const DISCONNECTED = 4;
export const FAILED = 0;
export const CLOSE = -1;

/** Calls back once when a read, or with `writable` a write, would not block or would fail. Returns how to cancel that. */
export function awaitReady(descriptor: number, writable: boolean, onReady: () => void): () => void {
  const set = native.pollDescriptor(descriptor, () => {
    set(CLOSE);
    onReady();
  });
  set((writable ? WRITABLE : READABLE) | DISCONNECTED);
  return () => set(CLOSE);
}

/** Resolves when a read (or a write if `writable` is true) would not block. Throws the reason of `signal`. */
export async function readiness(descriptor: number, writable: boolean, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const cancel = awaitReady(descriptor, writable, resolve);
  const forget = onAbort(signal, () => reject(signal.reason));
  try {
    await promise;
  } finally {
    forget();
    cancel();
  }
}
