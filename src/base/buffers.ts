import type { Writable } from 'node:stream';

/**
 * Frees the memory of a buffer, which must not be used afterwards. Large buffers are allocated outside the heap: left to
 * the garbage collector, every 64 MB of them cost a full collection. Does nothing if the buffer shares its memory.
 */
export function freeBuffer({ buffer, byteLength }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}

/** Frees the buffers and empties the list. */
export function freeAll(buffers: Buffer[]): void {
  for (const buffer of buffers.splice(0)) freeBuffer(buffer);
}

/** Maximum of bytes that are copied to be sent with the head: one write takes less time than one of two buffers. */
const COPIED_BYTES = 8 * 1024;

/** Ends a response with these bytes. Node joins a text to the head, and sends a buffer beside it by writev(2). */
export function endWith(response: Writable, bytes: Buffer): void {
  if (bytes.length > COPIED_BYTES) response.end(bytes);
  else response.end(bytes.toString('latin1'), 'latin1');
}
