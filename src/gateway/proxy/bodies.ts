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
 * would use much CPU for them. Must be called in the turn in which the body is piped, because it begins to flow.
 */
export function freeWhenSent(from: IncomingMessage, to: OutgoingMessage): void {
  const passed: Buffer[] = [];
  const free = () => {
    if (to.writableLength === 0) for (const chunk of passed.splice(0)) freeBuffer(chunk);
  };
  from.on('data', (chunk: Buffer) => {
    free();
    if (chunk.length >= FREED_FROM) passed.push(chunk);
  });
  to.on('drain', free);
}
