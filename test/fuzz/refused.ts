import { EnvdError, HttpError } from '../../src/base/errors.ts';

/** The message of an error that clients are shown; throws any other one. */
export function refusalOf(error: unknown): string {
  if (error instanceof EnvdError || error instanceof HttpError) return error.message;
  throw error;
}

/** The result of a call, or null when it refuses its input. */
export function unlessRefused<T>(call: () => T): T | null {
  try {
    return call();
  } catch (error) {
    refusalOf(error);
    return null;
  }
}

/** Pieces of `data`, as long as the bytes of `lengths` tell; the rest is the last one. */
export function* cut(data: Buffer, lengths: Buffer): Generator<Buffer, void> {
  let at = 0;
  for (const length of lengths) {
    if (at + length >= data.length) break;
    yield data.subarray(at, at + length);
    at += length;
  }
  yield data.subarray(at);
}
