import type { IncomingMessage, OutgoingMessage } from 'node:http';
import { freeBuffer } from '../../base/buffers.ts';

/** Chunks of at least this size are freed at once, in bytes. Smaller ones may share their memory. */
const FREED_FROM = 32 * 1024;

/** Forwards the trailers of a message. Must be called before its body is piped, because the end of the body sends them. */
export function forwardTrailers(from: IncomingMessage, to: OutgoingMessage): void {
  from.once('end', () => {
    if (from.rawTrailers.length > 0) to.addTrailers(pairs(from.rawTrailers));
  });
}

function pairs(raw: readonly string[]): [string, string][] {
  return Array.from({ length: raw.length / 2 }, (_, index) => [
    raw[2 * index] ?? '',
    raw[2 * index + 1] ?? '',
  ]);
}

/**
 * Frees the memory of large chunks when the kernel has them, because nothing else refers to them and the garbage collector
 * would use much CPU for them.
 */
export function freeWhenSent(message: OutgoingMessage): void {
  const write = message.write.bind(message) as (chunk: unknown, onSent?: () => void) => boolean;
  message.write = (chunk: unknown) =>
    chunk instanceof Buffer && chunk.length >= FREED_FROM
      ? write(chunk, () => freeBuffer(chunk))
      : write(chunk);
}
