import { native } from './native.ts';

/** Bytes that can be read from a pipe now. Source: FIONREAD, pipe(7). */
export function pendingBytes(fd: number): number {
  return native.pendingBytes(fd);
}
