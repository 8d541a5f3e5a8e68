import { decodeName, encodeName } from './names.ts';

/**
 * A path or name as bytes, one character per byte (Latin-1). Names that are not valid UTF-8 are preserved; joining,
 * comparing and use as keys are plain string operations. All other strings that are paths are texts as clients see them:
 * see `encodeName`.
 */
export type BytePath = string;

const BEYOND_ASCII = /[\x80-\xff]/;

export function bytePath(path: Buffer | string): BytePath {
  return (Buffer.isBuffer(path) ? path : decodeName(path)).toString('latin1');
}

/** The path for a system call. */
export function pathBuffer(path: BytePath): Buffer {
  return Buffer.from(path, 'latin1');
}

/** The path as clients see it. */
export function displayPath(path: BytePath): string {
  return BEYOND_ASCII.test(path) ? encodeName(pathBuffer(path)) : path;
}

/** `directory` and `name` joined; if one is empty, the other. */
export function joinBytes(directory: BytePath, name: BytePath): BytePath {
  if (directory === '' || name === '') return directory + name;
  return directory.endsWith('/') ? directory + name : `${directory}/${name}`;
}
