/**
 * Frees the memory of a buffer, which must not be used afterwards. Large buffers are allocated outside the heap: left to
 * the garbage collector, every 64 MB of them cost a full collection. Does nothing if the buffer shares its memory.
 */
export function freeBuffer({ buffer, byteLength }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}
