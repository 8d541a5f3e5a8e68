import { Code, ConnectError } from '@connectrpc/connect';
import { connectCodeOf, EnvdError, isSystemError, messageOf } from '../../base/errors.ts';

/** Errors of system calls for which something has run out: room on a file system, descriptors. */
const EXHAUSTED = ['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE'];

/** Anything that was thrown, as the protocol tells it. */
export function toConnectError(error: unknown): ConnectError {
  if (error instanceof ConnectError) return error;
  if (error instanceof EnvdError) {
    const code = Code[connectCodeOf(error.kind)];
    return new ConnectError(error.message, code, undefined, undefined, error);
  }
  const code = isSystemError(error, ...EXHAUSTED) ? Code.ResourceExhausted : Code.Internal;
  return new ConnectError(messageOf(error), code, undefined, undefined, error);
}
