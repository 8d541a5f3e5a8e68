import { HttpError } from '../../../base/errors.ts';

/** The limits of a JSON body. */
export interface JsonLimits {
  /** The limit of bytes as received, without those of the large member. */
  readonly bytes: number;
  /** A member of the outermost object whose string has a limit of its own, in bytes as received. */
  readonly large: { readonly name: string; readonly bytes: number } | null;
  /** The limit of objects and arrays. Megabytes of `{},{},…` would take V8 seconds to parse, one string of that size a moment. */
  readonly containers: number;
}

const [QUOTE, BACKSLASH, COLON, COMMA, OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY] =
  Buffer.from('"\\:,{}[]');

/** Checks the limits of a JSON text while it is received, before it is parsed. The text may be invalid. */
export class JsonScanner {
  readonly #limits: JsonLimits;
  readonly #name: Buffer;
  #bytes = 0;
  #largeBytes = 0;
  #containers = 0;
  #depth = 0;
  #isString = false;
  #isEscaped = false;
  /** Whether the current string is the value of the large member. */
  #isLarge = false;
  /** The number of bytes of the current string that match the name of the large member; -1: they do not match. */
  #matched = -1;
  /** Whether the last name in the outermost object is that of the large member. */
  #isNamed = false;
  /** The last structural character. */
  #separator: number | undefined = 0;

  constructor(limits: JsonLimits) {
    this.#limits = limits;
    this.#name = Buffer.from(limits.large?.name ?? '');
  }

  /** Throws an error with status 413 when a limit is exceeded. */
  add(chunk: Buffer): void {
    for (let at = 0; at < chunk.length; ) {
      if (this.#isString) at = this.#readString(chunk, at);
      else this.#readOutside(chunk[at++]);
    }
    const { bytes, large, containers } = this.#limits;
    if (large && this.#largeBytes > large.bytes)
      throw tooMuch(`${large.name} of at most ${large.bytes} bytes`);
    if (this.#bytes > bytes) throw tooMuch(`at most ${bytes} bytes${large ? ` besides ${large.name}` : ''}`);
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

  /** Reads to the end of the string or of the chunk. Returns the next position. */
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
