/**
 * Gives the memory of a piece of data back at once, which must not be used by anybody any more. Data in bulk lies
 * outside of the heap: left to the garbage collector, it piles up, and each 64 MB of it cost a full collection.
 * Pieces that share their memory with others are left alone.
 */
export function giveBack({ buffer, byteLength }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}
