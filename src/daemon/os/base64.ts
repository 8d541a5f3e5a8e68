import { native } from './native.ts';

/** The length of `bytes` as base64, padding included. Source: RFC 4648, section 4. */
export function base64Length(bytes: Buffer): number {
  return Math.ceil(bytes.length / 3) * 4;
}

/**
 * Writes `bytes` as base64 into `target` from `offset` on; returns the length of the text. Throws a RangeError when
 * there is no room. By the addon: strings would be garbage by the gigabyte, and collecting them takes a third of the
 * time of a stream (test/bench/stream.ts).
 */
export function writeBase64(bytes: Buffer, target: Buffer, offset: number): number {
  return native.encodeBase64(bytes, target, offset);
}
