import { decodeName, encodeName } from './names.ts';

/**
 * A path or name as bytes, with one character per byte (Latin-1). This form preserves names that are not valid UTF-8,
 * and it makes joining, comparing and looking up plain string operations. All other path strings are texts as clients
 * see them, which `encodeName` describes.
 */
export type BytePath = string;

const BEYOND_ASCII = /[\x80-\xff]/;

export function bytePath(path: Buffer | string): BytePath {
  return (Buffer.isBuffer(path) ? path : decodeName(path)).toString('latin1');
}

/** Returns the path in the form that system calls take. */
export function pathBuffer(path: BytePath): Buffer {
  return Buffer.from(path, 'latin1');
}

/** Returns the path as clients see it. */
export function displayPath(path: BytePath): string {
  return BEYOND_ASCII.test(path) ? encodeName(pathBuffer(path)) : path;
}

/** Joins `directory` and `name`. If one of them is empty, it returns the other. */
export function joinBytes(directory: BytePath, name: BytePath): BytePath {
  if (directory === '' || name === '') return directory + name;
  return directory.endsWith('/') ? directory + name : `${directory}/${name}`;
}
