/**
 * A path or name as the kernel knows it, one character for each byte: names that are not UTF-8 keep their identity,
 * and joining, comparing and using them as keys stay plain string operations.
 */
export type BytePath = string;

const BEYOND_ASCII = /[\x80-\xff]/;

export function bytePath(path: Buffer | string): BytePath {
  return Buffer.isBuffer(path) ? path.toString('latin1') : Buffer.from(path).toString('latin1');
}

/** The path for a system call. */
export function pathBuffer(path: BytePath): Buffer {
  return Buffer.from(path, 'latin1');
}

/** The path for people: UTF-8, with U+FFFD for what is not. */
export function displayPath(path: BytePath): string {
  return BEYOND_ASCII.test(path) ? Buffer.from(path, 'latin1').toString() : path;
}

/** `directory` and `name` joined; an empty one leaves the other. */
export function joinBytes(directory: BytePath, name: BytePath): BytePath {
  if (directory === '' || name === '') return directory + name;
  return directory.endsWith('/') ? directory + name : `${directory}/${name}`;
}
