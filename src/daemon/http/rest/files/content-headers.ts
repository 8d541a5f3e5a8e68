import { extname } from 'node:path';
import { create } from 'content-disposition';
import mime from 'mime-types';
import { Negotiator } from 'negotiator';
import { EnvdError } from '../../../../base/errors.ts';

/** The Content-Type, by the extension of the name; text is assumed to be UTF-8. */
export function typeOf(name: string): string {
  const type = mime.lookup(extname(name)) || 'application/octet-stream';
  return type.startsWith('text/') ? `${type}; charset=utf-8` : type;
}

/** The Content-Disposition. Names that are not ASCII are coded as in RFC 8187, without an ASCII fallback. */
export function dispositionOf(name: string): string {
  const header = create(name.toWellFormed(), { type: 'inline', fallback: false });
  return header.replace("*=UTF-8''", "*=utf-8''");
}

export type Coding = 'identity' | 'gzip';

/** Types that are compressed already: media, archives, fonts. */
const COMPRESSED =
  /^(audio|video|font)\/|^image\/(?!svg|bmp|x-ms-bmp|tiff)|^application\/(gzip|zip|zstd|x-(7z|xz|bzip|gzip|rar|zip)|vnd\.(rar|openxml|oasis)|java-archive|epub)/;

/**
 * The coding that the client prefers, of equal ones the first named; null when it accepts none (RFC 9110, section
 * 12.5.3). Compressed types are coded only if the client prefers gzip to identity.
 */
export function chooseCoding(acceptEncoding: string | undefined, contentType: string): Coding | null {
  const preferred: Coding[] = COMPRESSED.test(contentType) ? ['identity', 'gzip'] : [];
  return accepted(acceptEncoding, preferred)[0] ?? null;
}

/** The same; throws `not_acceptable` when the client accepts none. */
export function requireCoding(acceptEncoding: string | undefined, contentType: string): Coding {
  const coding = chooseCoding(acceptEncoding, contentType);
  if (coding !== null) return coding;
  const message = `no acceptable content coding: '${acceptEncoding}' excludes identity and gzip`;
  throw new EnvdError('not_acceptable', message);
}

/** Whether the client accepts the identity coding. */
export function acceptsIdentity(acceptEncoding: string | undefined): boolean {
  return accepted(acceptEncoding, []).includes('identity');
}

/** Best first; `preferred` orders those of equal quality. */
function accepted(acceptEncoding: string | undefined, preferred: readonly Coding[]): Coding[] {
  const negotiator = new Negotiator({ headers: { 'accept-encoding': acceptEncoding } });
  return negotiator.encodings(['identity', 'gzip'], { preferred }) as Coding[];
}
