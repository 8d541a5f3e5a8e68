/**
 * Frees the memory of a buffer immediately; the buffer must not be used afterwards. Buffers are allocated outside the
 * heap: without this, every 64 MB of them cause a full garbage collection. Does nothing for a buffer that is a part of a
 * larger one.
 */
export function freeBuffer({ buffer, byteLength }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}
