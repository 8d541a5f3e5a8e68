import { extname } from 'node:path';
import { create } from 'content-disposition';
import mime from 'mime-types';

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
