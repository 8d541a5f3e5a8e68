import type { IncomingHttpHeaders } from 'node:http';
import fresh from 'fresh';
import { EnvdError } from '../../../../base/errors.ts';
import type { Coding } from './content-headers.ts';

/** The validators of a file (RFC 9110, section 8.8); null when unavailable. */
export interface Validators {
  /** A strong entity tag, with its quotes. */
  readonly etag: string | null;
  /** The entity tag of the file coded by gzip: a weak one, because the compressed bytes may vary. */
  readonly codedEtag: string | null;
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

/** The validators of a file with this tag, without quotes, and modification time; null when unavailable. */
export function validatorsOf(tag: string | null, modified: Date | null): Validators {
  return {
    etag: tag && `"${tag}"`,
    codedEtag: tag && `W/"${tag}-gzip"`,
    lastModified: modified?.toUTCString() ?? null,
  };
}

export function tagFor({ etag, codedEtag }: Validators, coding: Coding): string | null {
  return coding === 'identity' ? etag : codedEtag;
}

export function isConditional(headers: IncomingHttpHeaders): boolean {
  return CONDITIONAL.some((name) => headers[name] !== undefined);
}

/**
 * Throws `failed_precondition` when If-Match or If-Unmodified-Since does not hold (RFC 9110, 13.1.1 and 13.1.4). If-Match may
 * have either tag: that of the coded form is weak, but stands for the same content.
 */
export function assertPreconditions(
  headers: IncomingHttpHeaders,
  { etag, codedEtag, lastModified }: Validators,
): void {
  const { 'if-match': match, 'if-unmodified-since': since } = headers;
  const holds =
    match === undefined
      ? since === undefined || lastModified === null || !(Date.parse(lastModified) > Date.parse(since))
      : match.trim() === '*' || match.split(',').some((tag) => [etag, codedEtag].includes(tag.trim()));
  if (holds) return;
  const header = match === undefined ? 'If-Unmodified-Since' : 'If-Match';
  throw new EnvdError('failed_precondition', `file has changed: ${header} does not match it`);
}

/**
 * Throws `failed_precondition` when a condition of an upload does not hold for the file, null when it is missing.
 */
export function assertUploadConditions(headers: IncomingHttpHeaders, file: Validators | null): void {
  const { 'if-match': wanted, 'if-unmodified-since': since, 'if-none-match': unwanted } = headers;
  if (file && unwanted?.trim() === '*')
    throw new EnvdError('failed_precondition', "file exists: If-None-Match is '*'");
  if (file && unwanted !== undefined && namesTag(unwanted, file))
    throw new EnvdError('failed_precondition', 'file has not changed: If-None-Match matches it');
  if (file) assertPreconditions(headers, file);
  else if (wanted !== undefined || since !== undefined)
    throw new EnvdError('failed_precondition', 'file does not exist, as the condition of the upload wants');
}

function namesTag(list: string, { etag, codedEtag }: Validators): boolean {
  return list.split(',').some((tag) => [etag, `W/${etag}`, codedEtag].includes(tag.trim()));
}

/**
 * Whether the client's copy, of this coding, is current (13.1.2 and 13.1.3). `Cache-Control: no-cache`, which browsers and fetch add to
 * conditional requests, is ignored: it is meant for caches.
 */
export function isNotModified(headers: IncomingHttpHeaders, validators: Validators, coding: Coding): boolean {
  const { 'if-none-match': match, 'if-modified-since': since } = headers;
  return fresh(
    { 'if-none-match': match, 'if-modified-since': since },
    { etag: tagFor(validators, coding) ?? undefined, 'last-modified': validators.lastModified ?? undefined },
  );
}

/**
 * Whether the client may get ranges: not when If-Range says that its part belongs to another content (13.1.5), nor with
 * If-None-Match. Such a range is made by a browser from the one of its page and from a copy. Chromium takes the length of the
 * copy, which may be coded or outdated, for that of the file, and asks for less than the page does.
 */
export function mayHaveRanges(headers: IncomingHttpHeaders, { etag, lastModified }: Validators): boolean {
  if (headers['if-none-match'] !== undefined) return false;
  const condition = headers['if-range'];
  if (condition === undefined) return true;
  const text = String(condition).trim();
  if (text.startsWith('"') || text.startsWith('W/')) return text === etag;
  return lastModified !== null && Date.parse(text) === Date.parse(lastModified);
}
