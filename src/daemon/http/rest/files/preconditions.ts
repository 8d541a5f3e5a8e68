import type { IncomingHttpHeaders } from 'node:http';
import fresh from 'fresh';
import { EnvdError } from '../../../../base/errors.ts';
import type { Coding } from './content-headers.ts';

/** The validators of a file; null: unavailable. Source: RFC 9110, section 8.8. */
export interface Validators {
  /** A strong entity tag, with its quotes. */
  readonly etag: string | null;
  /** The entity tag of the file coded by gzip. It is weak, because the compressed bytes may vary. */
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

/** Returns the validators of a file with this tag, without quotes, and this modification time; null: unavailable. */
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
 * Throws `failed_precondition` when If-Match or If-Unmodified-Since does not hold. If-Match may name the tag of the coded form, too,
 * which is weak but stands for the same content. Source: RFC 9110, sections 13.1.1 and 13.1.4.
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

/** Throws `failed_precondition` when a condition of an upload does not hold for the file; null: there is no file. */
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
 * Returns whether the client's copy, in this coding, is current. `Cache-Control: no-cache` is ignored, because browsers and fetch add
 * it to conditional requests for the caches on the way. Source: RFC 9110, sections 13.1.2 and 13.1.3.
 */
export function isNotModified(headers: IncomingHttpHeaders, validators: Validators, coding: Coding): boolean {
  const { 'if-none-match': match, 'if-modified-since': since } = headers;
  return fresh(
    { 'if-none-match': match, 'if-modified-since': since },
    { etag: tagFor(validators, coding) ?? undefined, 'last-modified': validators.lastModified ?? undefined },
  );
}

/**
 * Returns whether the client may get ranges. It may not when If-Range says that its part belongs to other content, and not with
 * If-None-Match. With If-None-Match, a browser combines the range that its page asks for with its own copy. Chromium takes the length
 * of that copy, which may be coded or outdated, for the length of the file, and asks for too little. Source: RFC 9110, section 13.1.5.
 */
export function mayHaveRanges(headers: IncomingHttpHeaders, { etag, lastModified }: Validators): boolean {
  if (headers['if-none-match'] !== undefined) return false;
  const condition = headers['if-range'];
  if (condition === undefined) return true;
  const text = String(condition).trim();
  if (text.startsWith('"') || text.startsWith('W/')) return text === etag;
  return lastModified !== null && Date.parse(text) === Date.parse(lastModified);
}
