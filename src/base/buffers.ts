import type { Writable } from 'node:stream';

/**
 * Frees the memory of a buffer, which must not be used afterwards. Does nothing if the buffer shares its memory. Large buffers
 * are outside the heap: V8 runs a full garbage collection for every 64 MB of them that nobody frees.
 */
export function freeBuffer({ buffer, byteLength }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}

/** Up to this size, it is faster to copy a body behind the head than to write both with one writev(2). */
const COPIED_BYTES = 8 * 1024;

/** Ends a response with these bytes. Node appends a string to the head, and writes a buffer separately, with writev(2). */
export function endWith(response: Writable, bytes: Buffer): void {
  if (bytes.length > COPIED_BYTES) response.end(bytes);
  else response.end(bytes.toString('latin1'), 'latin1');
}
