import type { IncomingMessage, OutgoingMessage } from 'node:http';

/** Passes the trailers of a message on. To be called before the body is piped: they go out with its end. */
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
