/**
 * A path or name as bytes, one character per byte (Latin-1). Names that are not valid UTF-8 are preserved; joining,
 * comparing and use as keys are plain string operations.
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

/** The path decoded as UTF-8; invalid bytes become U+FFFD. */
export function displayPath(path: BytePath): string {
  return BEYOND_ASCII.test(path) ? Buffer.from(path, 'latin1').toString() : path;
}

/** `directory` and `name` joined; if one is empty, the other. */
export function joinBytes(directory: BytePath, name: BytePath): BytePath {
  if (directory === '' || name === '') return directory + name;
  return directory.endsWith('/') ? directory + name : `${directory}/${name}`;
}
