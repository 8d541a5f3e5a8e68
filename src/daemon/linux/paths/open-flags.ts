// Node does not name these flags of open(2). Their numbers are those of asm-generic/fcntl.h.
import { constants } from 'node:fs';

/** This flag opens an entry of any kind without access to its content. */
export const O_PATH = 0o10000000;

/** This flag opens an unnamed file. It includes O_DIRECTORY, which differs between architectures. */
export const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
