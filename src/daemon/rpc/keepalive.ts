const DEFAULT_SECONDS = 90;
// setTimeout counts milliseconds in 31 bits.
const MAX_SECONDS = 2_147_483;

/** The interval of keepalive messages that a request asks for, in milliseconds; unusable values mean 90 s. */
export function keepaliveMsOf(headers: Headers): number {
  const asked = headers.get('keepalive-ping-interval') ?? '';
  const seconds = /^\d+$/.test(asked) ? Number(asked) : 0;
  return (seconds > 0 ? Math.min(seconds, MAX_SECONDS) : DEFAULT_SECONDS) * 1000;
}
