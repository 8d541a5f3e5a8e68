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

/** Bodies up to this size are copied, so that head and body go out in one buffer: a writev(2) of two takes longer. */
const COPIED_BYTES = 8 * 1024;

/** Ends a response with these bytes. Node appends a string to the head, but writes a buffer beside it by writev(2). */
export function endWith(response: Writable, bytes: Buffer): void {
  if (bytes.length > COPIED_BYTES) response.end(bytes);
  else response.end(bytes.toString('latin1'), 'latin1');
}
