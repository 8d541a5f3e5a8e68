import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs';
import process from 'node:process';
import { EnvdError, messageOf } from '../../base/errors.ts';

/** More bytes are no token. A header of a request may have 16 KiB in all. */
const MOST_BYTES = 4096;
/** A token is sent as the value of a header. Other characters would arrive in more than one form, or not at all. */
const TOKEN = /^[\x21-\x7e]+$/;

/**
 * Reads the access token from a file that only root and the daemon can read. One line end after the token is left out. Throws
 * `failed_precondition` if the file cannot be read, may be read or changed by others, or has anything but one token. No error
 * quotes the content.
 */
export function readTokenFile(path: string): string {
  try {
    return readToken(path);
  } catch (error) {
    const text = `cannot use the file of --token-file '${path}': ${messageOf(error)}`;
    throw new EnvdError('failed_precondition', text, { cause: error });
  }
}

function readToken(path: string): string {
  // Without O_NONBLOCK, a fifo would be waited for.
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const obstacle = obstacleOf(fstatSync(descriptor));
    if (obstacle !== null) throw new Error(obstacle);
    return tokenIn(readUpTo(descriptor, MOST_BYTES + 1));
  } finally {
    closeSync(descriptor);
  }
}

/** Returns why a file cannot hold a secret of this process; null when it can. */
function obstacleOf(status: Stats): string | null {
  const mode = `its mode is ${(status.mode & 0o777).toString(8).padStart(4, '0')}`;
  const [uid = 0, gids] = [process.geteuid?.(), groups()];
  if (!status.isFile()) return 'it is not a regular file';
  if (status.uid !== 0 && status.uid !== uid)
    return `its owner, uid ${status.uid}, can change it: give it to root or to uid ${uid}`;
  if ((status.mode & 0o027) !== 0) return `${mode}, so that others can read or change it: use 0400`;
  if ((status.mode & 0o040) !== 0 && !gids.includes(status.gid))
    return `${mode}, and its group, gid ${status.gid}, is not the daemon's: use 0400`;
  return null;
}

/** Returns the groups that may read the file. A daemon that is root has others only by the login it was started from. */
function groups(): readonly number[] {
  if (process.geteuid?.() === 0) return [0];
  return [process.getegid?.() ?? 0, ...(process.getgroups?.() ?? [])];
}

function readUpTo(descriptor: number, most: number): Buffer {
  const buffer = Buffer.alloc(most);
  let length = 0;
  for (;;) {
    const read = readSync(descriptor, buffer, length, most - length, null);
    length += read;
    if (read === 0 || length === most) return buffer.subarray(0, length);
  }
}

function tokenIn(content: Buffer): string {
  if (content.length > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
  const token = content.toString('latin1').replace(/\r?\n$/, '');
  if (token === '') throw new Error('it is empty');
  if (TOKEN.test(token)) return token;
  throw new Error('it must have one line of printable ASCII characters without spaces');
}
