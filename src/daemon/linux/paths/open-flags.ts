// Flags of open(2) that Node does not name; their numbers are those of asm-generic/fcntl.h.
import { constants } from 'node:fs';

/** Opens an entry of any kind without access to it. */
export const O_PATH = 0o10000000;

/** Opens an unnamed file. O_DIRECTORY, a part of it, differs between architectures. */
export const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
