import { extname } from 'node:path';
import { create } from 'content-disposition';
import mime from 'mime-types';
import { Negotiator } from 'negotiator';
import { EnvdError } from '../../../../base/errors.ts';

/** Returns the Content-Type for the extension of a name. Text is assumed to be UTF-8. */
export function typeOf(name: string): string {
  const type = mime.lookup(extname(name)) || 'application/octet-stream';
  return type.startsWith('text/') ? `${type}; charset=utf-8` : type;
}

/** Returns the Content-Disposition. Names that are not ASCII are coded as in RFC 8187, without an ASCII fallback. */
export function dispositionOf(name: string): string {
  const header = create(name.toWellFormed(), { type: 'inline', fallback: false });
  return header.replace("*=UTF-8''", "*=utf-8''");
}

export type Coding = 'identity' | 'gzip';

/**
 * Returns the coding that the client prefers, or the first of several equal ones; null when it accepts none. Source: RFC 9110,
 * section 12.5.3.
 */
export function chooseCoding(acceptEncoding: string | undefined): Coding | null {
  return accepted(acceptEncoding)[0] ?? null;
}

/** Returns what `chooseCoding` returns, but throws `not_acceptable` when the client accepts no coding. */
export function requireCoding(acceptEncoding: string | undefined): Coding {
  const coding = chooseCoding(acceptEncoding);
  if (coding !== null) return coding;
  const message = `no acceptable content coding: '${acceptEncoding}' excludes identity and gzip`;
  throw new EnvdError('not_acceptable', message);
}

/** Returns whether the client accepts the identity coding. */
export function acceptsIdentity(acceptEncoding: string | undefined): boolean {
  return accepted(acceptEncoding).includes('identity');
}

/** Returns the accepted codings, best first. */
function accepted(acceptEncoding: string | undefined): Coding[] {
  const negotiator = new Negotiator({ headers: { 'accept-encoding': acceptEncoding } });
  return negotiator.encodings(['identity', 'gzip']) as Coding[];
}
