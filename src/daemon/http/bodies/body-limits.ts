// What happens to a body that is too long: its reader throws an error of this file as soon as the limit is passed, keeps nothing of
// it, and the connection closes after the answer. Content of files is limited by the disk alone, which answers 507 when it is full.
import { EnvdError, HttpError } from '../../../base/errors.ts';

/**
 * The most bytes of the message of an RPC. The limit for JSON is lower, because decoding JSON blocks the event loop, whereas
 * decoding a binary message does not even copy its bytes.
 */
export const REQUEST_LIMIT_BYTES: Readonly<Record<'binary' | 'json', number>> = {
  binary: 64 * 1024 * 1024,
  json: 16 * 1024 * 1024,
};
/** The most bytes of a compressed message after decompression, because a kilobyte may become a megabyte. */
export const DECOMPRESSED_LIMIT_BYTES = 4 * 1024 * 1024;
/** The most bytes of the body of `/init`, and of its `caBundle`: complete bundles of certificate authorities have about 220 KiB. */
export const INIT_LIMIT_BYTES = { body: 64 * 1024, caBundle: 512 * 1024 };
/** The most bytes of the body of `/files/compose`. */
export const COMPOSE_LIMIT_BYTES = 1024 * 1024;
/** The most parts of a form, including skipped ones, because the parser uses memory for each. */
export const MOST_PARTS = 10_000;

/** The answer to an RPC: `resource_exhausted`. */
export function messageTooLong(limit: number): EnvdError {
  return new EnvdError('resource_exhausted', `request is larger than ${limit} bytes: send less at a time`);
}

/** The answer to any other request: the status 413. */
export function bodyTooLong(limit: number, instead = ''): HttpError {
  return new HttpError(413, `request body is too large: send at most ${limit} bytes${instead}`);
}

/** The same for a form. */
export function tooManyParts(): HttpError {
  return new HttpError(413, `multipart body has more than ${MOST_PARTS} parts`);
}
