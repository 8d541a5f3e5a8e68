import { isUtf8 } from 'node:buffer';
import { onAbort } from '../../../base/abort.ts';
import { EnvdError, HttpError } from '../../../base/errors.ts';
import { EvictingSemaphore } from '../../../base/evicting-semaphore.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { bodyTooLong } from './body-limits.ts';
import { readBody } from './read-body.ts';

/** A smaller JSON text is parsed within some milliseconds, whatever it contains. */
export const SIMPLE_BYTES = 64 * 1024;
/** The most members, objects and arrays of a JSON text. Megabytes of `{},{},…` would take V8 seconds to parse. */
const MAX_MEMBERS = 16 * 1024;
/** The most elements of arrays and escaped quotes of a JSON text, which take less time. */
const MAX_ELEMENTS = 256 * 1024;

/** A search for a number is faster than one for a text. */
const QUOTE = 0x22;
const [BACKSLASH, COLON, COMMA, OPEN_OBJECT, OPEN_ARRAY] = Buffer.from('\\:,{[');

/**
 * Reads and parses a JSON body, with any content type. Returns undefined for an empty one. Throws `invalid_argument` when it is not
 * JSON, `resource_exhausted` when it would take too long to parse, and what `readBody` throws.
 */
export async function readJson(call: CallScope, limit: number, tooLong = bodyTooLong): Promise<unknown> {
  return parse(await readBody(call, limit, tooLong));
}

function parse(body: Buffer): unknown {
  requireSimpleJson(body);
  // Without this check, replacement characters would make another path of a path that is not UTF-8.
  if (!isUtf8(body)) throw new EnvdError('invalid_argument', 'request body is not UTF-8');
  const text = body.toString();
  try {
    return JSON.parse(text);
  } catch (error) {
    if (text.trim() === '') return undefined;
    // V8's message quotes the text, which may contain a token.
    throw new EnvdError('invalid_argument', 'request body is not valid JSON', { cause: error });
  }
}

/** A member of an object whose text has a limit of its own. */
interface LargeMember {
  readonly name: string;
  readonly bytes: number;
}

/** Throws an error with status 413 for a value of `length` bytes that is too long besides its large member, or whose large member is. */
function requireShort(value: unknown, length: number, limit: number, { name, bytes }: LargeMember): void {
  const isObject = typeof value === 'object' && value !== null;
  const [, member] = (isObject && Object.entries(value).find(([key]) => key === name)) || [];
  const large = typeof member === 'string' ? Buffer.byteLength(JSON.stringify(member)) : 0;
  if (large > bytes) throw bodyTooLong(bytes, ` of ${name}`);
  if (length - large > limit) throw bodyTooLong(limit, ` besides ${name}`);
}

/** The most bodies that are received at a time. */
const OPEN_LIMIT = 16;
/** How long a body may take, in milliseconds. */
const TIME_LIMIT_MS = 5000;

/**
 * Reads JSON bodies of clients that may be unauthorized, within a limit of number and time. When too many bodies are being received,
 * the oldest is refused, so that slow clients cannot lock out others.
 */
export class JsonBodies {
  readonly #limit: number;
  readonly #large: LargeMember | null;
  readonly #places = new EvictingSemaphore({
    most: OPEN_LIMIT,
    dropped: () =>
      new HttpError(503, `more than ${OPEN_LIMIT} request bodies are being sent: send this one again`),
  });

  /** `limit` is in bytes, without those of the large member. */
  constructor(limit: number, large: LargeMember | null = null) {
    this.#limit = limit;
    this.#large = large;
  }

  /** Does what `readJson` does. Throws an error with status 408 or 503 at a limit, too. */
  async read(call: CallScope): Promise<unknown> {
    using place = this.#places.take();
    onAbort(place.signal, () => call.abort(place.signal.reason));
    const text = `request body took longer than ${TIME_LIMIT_MS / 1000} s: send all of it at once`;
    const timer = setTimeout(() => call.abort(new HttpError(408, text)), TIME_LIMIT_MS);
    try {
      const body = await readBody(call, this.#limit + (this.#large?.bytes ?? 0), bodyTooLong);
      const value = parse(body);
      if (this.#large) requireShort(value, body.length, this.#limit, this.#large);
      return value;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Throws `resource_exhausted` for a JSON text whose parsing would block the event loop. The text may be invalid. */
export function requireSimpleJson(text: Buffer): void {
  if (text.length <= SIMPLE_BYTES) return;
  let members = MAX_MEMBERS;
  const elements = { left: MAX_ELEMENTS };
  for (let at = 0; at < text.length; at++) {
    const byte = text[at];
    if (byte === QUOTE) at = endOfString(text, at + 1, elements);
    else if (byte === COLON || byte === OPEN_OBJECT || byte === OPEN_ARRAY) members--;
    else if (byte === COMMA) elements.left--;
    if (members < 0) throw tooComplex(`${MAX_MEMBERS} members, objects and arrays`);
    if (elements.left < 0) throw tooComplex(`${MAX_ELEMENTS} elements and escaped quotes`);
  }
}

/** Returns the position of the quote that ends a string, or the length of the text if there is none. */
function endOfString(text: Buffer, start: number, elements: { left: number }): number {
  elements.left--;
  for (let quote = text.indexOf(QUOTE, start); quote >= 0; quote = text.indexOf(QUOTE, quote + 1)) {
    let before = quote;
    while (before > start && text[before - 1] === BACKSLASH) before--;
    if ((quote - before) % 2 === 0 || --elements.left < 0) return quote;
  }
  return text.length;
}

export function tooComplex(most: string): EnvdError {
  return new EnvdError('resource_exhausted', `request has more than ${most}: send less at a time`);
}
