import type { IncomingHttpHeaders } from 'node:http';
import type { ByteRange } from '../../../services/files/content.ts';
import type { Download } from '../../../services/files/download.ts';
import {
  acceptsIdentity,
  type Coding,
  chooseCoding,
  dispositionOf,
  requireCoding,
  typeOf,
} from './content-headers.ts';
import {
  assertPreconditions,
  isConditional,
  isNotModified,
  mayHaveRanges,
  tagFor,
  type Validators,
  validatorsOf,
} from './preconditions.ts';
import { contentRange, multipartRanges, type Range, selectRanges } from './ranges.ts';

type Headers = Readonly<Record<string, string | number>>;

/** The response to a download. */
export interface DownloadPlan {
  readonly status: 200 | 206 | 304 | 416;
  readonly headers: Headers;
  /** The parts of the body, before it is coded. */
  readonly pieces: readonly (Buffer | ByteRange)[];
  readonly coding: Coding;
}

/** The properties of a download that determine the response. */
export type DownloadFacts = Pick<Download, 'name' | 'size' | 'modified' | 'tag'>;

/**
 * Plans the response to a download: the file, ranges of it, 304 or 416. Throws `failed_precondition` when a condition does not hold,
 * and `not_acceptable` when the client accepts none of the available codings. Source: RFC 9110.
 */
export function planDownload(
  method: string,
  headers: IncomingHttpHeaders,
  file: DownloadFacts,
  wantsDigest = false,
): DownloadPlan {
  const validators = validatorsOf(file.tag, file.modified);
  if (isConditional(headers)) {
    assertPreconditions(headers, validators);
    const cached = cacheableCodings(headers).find((coding) => isNotModified(headers, validators, coding));
    if (cached)
      return { status: 304, headers: commonHeaders(validators, cached), pieces: [], coding: 'identity' };
  }
  const coding = codingFor(headers, wantsDigest);
  const common = commonHeaders(validators, coding);
  // RFC 9110 defines ranges for GET only. Here they are supported for the identity coding.
  const isForRanges = method === 'GET' && coding === 'identity' && mayHaveRanges(headers, validators);
  if (file.size !== null && isForRanges) {
    const ranges = selectRanges(headers.range, file.size);
    if (ranges) return planRanges(ranges, file.name, file.size, common);
  }
  return planWhole(file, coding, common);
}

/** Chooses the coding. Ranges, conditions and a wanted digest apply to the uncoded file, so they get the identity coding. */
function codingFor(headers: IncomingHttpHeaders, wantsDigest: boolean): Coding {
  const accept = headers['accept-encoding'];
  const isAboutFile = headers.range !== undefined || isConditional(headers) || wantsDigest;
  if (isAboutFile && acceptsIdentity(accept)) return 'identity';
  return requireCoding(accept);
}

/**
 * Returns the codings of a cached copy that the client can use. When it requests ranges, gzip is not among them, because browsers
 * take the ranges from the copy.
 */
function cacheableCodings(headers: IncomingHttpHeaders): readonly Coding[] {
  const coded = headers.range === undefined && chooseCoding(headers['accept-encoding']) === 'gzip';
  return coded ? ['identity', 'gzip'] : ['identity'];
}

/**
 * Returns the headers of every response with the file or a part of it, and of a 304. With `no-cache`, a browser asks each time.
 * Otherwise it would guess from Last-Modified how long its copy is current, and show outdated content.
 */
function commonHeaders(validators: Validators, coding: Coding): Headers {
  const etag = tagFor(validators, coding);
  const { lastModified } = validators;
  return {
    'cache-control': 'private, no-cache',
    'x-content-type-options': 'nosniff',
    vary: 'Accept-Encoding',
    ...(etag !== null && { etag }),
    ...(lastModified !== null && { 'last-modified': lastModified }),
  };
}

function planWhole({ name, size }: DownloadFacts, coding: Coding, common: Headers): DownloadPlan {
  const headers = {
    ...common,
    'content-type': typeOf(name),
    'content-disposition': dispositionOf(name),
    ...(size !== null && { 'accept-ranges': 'bytes' }),
    ...(coding === 'identity' ? size !== null && { 'content-length': size } : { 'content-encoding': coding }),
  };
  return { status: 200, headers, pieces: [{ start: 0, end: size }], coding };
}

function planRanges(ranges: readonly Range[], name: string, size: number, common: Headers): DownloadPlan {
  const coding = 'identity';
  const [only] = ranges;
  if (!only) return { status: 416, headers: { 'content-range': `bytes */${size}` }, pieces: [], coding };
  const headers = { ...common, 'content-disposition': dispositionOf(name), 'accept-ranges': 'bytes' };
  if (ranges.length === 1) {
    const { start, end } = only;
    const own = { 'content-type': typeOf(name), 'content-range': contentRange(only, size) };
    return {
      status: 206,
      headers: { ...headers, ...own, 'content-length': end - start },
      pieces: ranges,
      coding,
    };
  }
  const { contentType, length, pieces } = multipartRanges(ranges, typeOf(name), size);
  const own = { 'content-type': contentType, 'content-length': length };
  return { status: 206, headers: { ...headers, ...own }, pieces, coding };
}
