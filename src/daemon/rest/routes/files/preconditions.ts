import type { IncomingHttpHeaders } from 'node:http';
import fresh from 'fresh';
import { EnvdError } from '../../../../base/errors.ts';

/** The validators of a file (RFC 9110, section 8.8); null when unavailable. */
export interface Validators {
  /** A strong entity tag, with its quotes. */
  readonly etag: string | null;
  /** An HTTP date. */
  readonly lastModified: string | null;
}

const CONDITIONAL = [
  'if-match',
  'if-none-match',
  'if-modified-since',
  'if-unmodified-since',
  'if-range',
] as const;

export function isConditional(headers: IncomingHttpHeaders): boolean {
  return CONDITIONAL.some((name) => headers[name] !== undefined);
}

/** Throws `failed_precondition` when If-Match or If-Unmodified-Since does not hold (RFC 9110, 13.1.1 and 13.1.4). */
export function assertPreconditions(headers: IncomingHttpHeaders, { etag, lastModified }: Validators): void {
  const { 'if-match': match, 'if-unmodified-since': since } = headers;
  const holds =
    match === undefined
      ? since === undefined || lastModified === null || !(Date.parse(lastModified) > Date.parse(since))
      : match.trim() === '*' || match.split(',').some((tag) => tag.trim() === etag);
  if (holds) return;
  const header = match === undefined ? 'If-Unmodified-Since' : 'If-Match';
  throw new EnvdError('failed_precondition', `file has changed: ${header} does not match it`);
}

/**
 * Whether the client's copy is current (13.1.2 and 13.1.3). `Cache-Control: no-cache`, which browsers and fetch add to
 * conditional requests, is ignored: it is meant for caches.
 */
export function isNotModified(headers: IncomingHttpHeaders, { etag, lastModified }: Validators): boolean {
  const { 'if-none-match': match, 'if-modified-since': since } = headers;
  return fresh(
    { 'if-none-match': match, 'if-modified-since': since },
    { etag: etag ?? undefined, 'last-modified': lastModified ?? undefined },
  );
}

/** Whether If-Range allows ranges: the client's part belongs to the current content (13.1.5). */
export function isSameForRange(headers: IncomingHttpHeaders, { etag, lastModified }: Validators): boolean {
  const condition = headers['if-range'];
  if (condition === undefined) return true;
  const text = String(condition).trim();
  if (text.startsWith('"') || text.startsWith('W/')) return text === etag;
  return lastModified !== null && Date.parse(text) === Date.parse(lastModified);
}
