import { native } from './native.ts';

/** A pipe, both ends close-on-exec and blocking: `[read, write]`. Source: pipe2(2). */
export function createPipe(): [number, number] {
  return native.pipe();
}

/** Bytes that can be read from a pipe now. Source: FIONREAD, pipe(7). */
export function pendingBytes(fd: number): number {
  return native.pendingBytes(fd);
}
