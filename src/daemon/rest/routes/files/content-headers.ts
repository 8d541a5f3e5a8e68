import { extname } from 'node:path';
import { create } from 'content-disposition';
import mime from 'mime-types';
import { Negotiator } from 'negotiator';

/** By the name's extension; text is taken for UTF-8. */
export function typeOf(name: string): string {
  const type = mime.lookup(extname(name)) || 'application/octet-stream';
  return type.startsWith('text/') ? `${type}; charset=utf-8` : type;
}

/** Names that are not ASCII as RFC 8187 has it, without a second spelling. */
export function dispositionOf(name: string): string {
  const header = create(name.toWellFormed(), { type: 'inline', fallback: false });
  return header.replace("*=UTF-8''", "*=utf-8''");
}

export type Coding = 'identity' | 'gzip';

/** What would not get smaller: media, archives, fonts. */
const COMPRESSED =
  /^(audio|video|font)\/|^image\/(?!svg|bmp|x-ms-bmp|tiff)|^application\/(gzip|zip|zstd|x-(7z|xz|bzip|gzip|rar|zip)|vnd\.(rar|openxml|oasis)|java-archive|epub)/;

/**
 * The coding that the client likes best, of equals the first it names; null when it accepts none (RFC 9110,
 * section 12.5.3). What is compressed already is coded only for a client that prefers that expressly.
 */
export function chooseCoding(acceptEncoding: string | undefined, contentType: string): Coding | null {
  const preferred: Coding[] = COMPRESSED.test(contentType) ? ['identity', 'gzip'] : [];
  return accepted(acceptEncoding, preferred)[0] ?? null;
}

/** Whether the client takes the file as it is. */
export function acceptsIdentity(acceptEncoding: string | undefined): boolean {
  return accepted(acceptEncoding, []).includes('identity');
}

/** Best first; of equals, those in `preferred` first. */
function accepted(acceptEncoding: string | undefined, preferred: readonly Coding[]): Coding[] {
  const negotiator = new Negotiator({ headers: { 'accept-encoding': acceptEncoding } });
  return negotiator.encodings(['identity', 'gzip'], { preferred }) as Coding[];
}
