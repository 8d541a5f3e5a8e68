import { HttpError } from '../../base/errors.ts';

/** What the text of a JSON body may be made of. */
export interface JsonLimits {
  /** Bytes as they are sent, but for the large member. */
  readonly bytes: number;
  /** A member of the outermost object whose string has a limit of its own, in bytes as they are sent. */
  readonly large: { readonly name: string; readonly bytes: number } | null;
  /**
   * Objects and arrays. V8 takes microseconds for each, and garbage collections that grow with their number: a body
   * of 16 MiB that is `{},{},…` is parsed for half a minute, one that is a string for 20 ms.
   */
  readonly containers: number;
}

const [QUOTE, BACKSLASH, COLON, COMMA, OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY] =
  Buffer.from('"\\:,{}[]');

/** Holds a JSON text to its limits while it arrives, before it is parsed. It need not be valid. */
export class JsonScanner {
  readonly #limits: JsonLimits;
  readonly #name: Buffer;
  #bytes = 0;
  #largeBytes = 0;
  #containers = 0;
  #depth = 0;
  #isString = false;
  #isEscaped = false;
  /** Whether the string that is being read is the large member's. */
  #isLarge = false;
  /** How many bytes of the name of the large member the string that is being read begins with; -1: it is another. */
  #matched = -1;
  /** Whether the last name in the outermost object was that of the large member. */
  #isNamed = false;
  /** The last byte outside of strings that separates values. */
  #separator: number | undefined = 0;

  constructor(limits: JsonLimits) {
    this.#limits = limits;
    this.#name = Buffer.from(limits.large?.name ?? '');
  }

  /** Throws an error with the status 413 when there is too much of something. */
  add(chunk: Buffer): void {
    for (let at = 0; at < chunk.length; ) {
      if (this.#isString) at = this.#readString(chunk, at);
      else this.#readOutside(chunk[at++]);
    }
    const { bytes, large, containers } = this.#limits;
    if (large && this.#largeBytes > large.bytes)
      throw tooMuch(`${large.name} of at most ${large.bytes} bytes`);
    if (this.#bytes > bytes) throw tooMuch(`at most ${bytes} bytes${large ? ` beside ${large.name}` : ''}`);
    if (this.#containers > containers) throw tooMuch(`at most ${containers} objects and arrays`);
  }

  #readOutside(byte: number | undefined): void {
    this.#bytes++;
    switch (byte) {
      case QUOTE:
        this.#beginString();
        return;
      case OPEN_OBJECT:
      case OPEN_ARRAY:
        this.#containers++;
        this.#depth++;
        break;
      case CLOSE_OBJECT:
      case CLOSE_ARRAY:
        this.#depth--;
        break;
      case COLON:
      case COMMA:
        break;
      default:
        return;
    }
    this.#separator = byte;
  }

  #beginString(): void {
    const isMember = this.#depth === 1;
    const isValue = this.#separator === COLON;
    this.#isString = true;
    this.#isLarge = isMember && isValue && this.#isNamed;
    this.#matched = isMember && !isValue && this.#name.length > 0 ? 0 : -1;
  }

  /** Reads up to the end of the string, or of the chunk; returns where it goes on. */
  #readString(chunk: Buffer, start: number): number {
    let end = start;
    if (this.#isEscaped) end++;
    else while (end < chunk.length && chunk[end] !== QUOTE && chunk[end] !== BACKSLASH) end++;
    for (let at = start; at < end && this.#matched >= 0; at++) this.#match(chunk[at]);
    const last = this.#isEscaped ? undefined : chunk[end];
    this.#isEscaped = last === BACKSLASH;
    if (last === BACKSLASH) this.#match(last);
    if (last === QUOTE) this.#endString();
    const next = last === undefined ? end : end + 1;
    if (this.#isLarge) this.#largeBytes += next - start;
    else this.#bytes += next - start;
    return next;
  }

  #match(byte: number | undefined): void {
    this.#matched = byte === this.#name[this.#matched] ? this.#matched + 1 : -1;
  }

  #endString(): void {
    this.#isString = false;
    if (this.#depth === 1 && this.#separator !== COLON) this.#isNamed = this.#matched === this.#name.length;
  }
}

function tooMuch(wanted: string): HttpError {
  return new HttpError(413, `request body is too large: send ${wanted}`);
}
