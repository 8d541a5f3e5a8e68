import { Code, ConnectError } from '@connectrpc/connect';
import { EnvdError, type ErrorKind, isSystemError, messageOf } from '../../base/errors.ts';

const CODE: Record<ErrorKind, Code> = {
  aborted: Code.Aborted,
  already_exists: Code.AlreadyExists,
  deadline_exceeded: Code.DeadlineExceeded,
  failed_precondition: Code.FailedPrecondition,
  internal: Code.Internal,
  invalid_argument: Code.InvalidArgument,
  no_space: Code.ResourceExhausted,
  not_acceptable: Code.InvalidArgument,
  not_found: Code.NotFound,
  permission_denied: Code.PermissionDenied,
  resource_exhausted: Code.ResourceExhausted,
  unauthenticated: Code.Unauthenticated,
  unavailable: Code.Unavailable,
  unimplemented: Code.Unimplemented,
};

/** Errors of system calls for which something has run out: room on a file system, descriptors. */
const EXHAUSTED = ['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE'];

/** Anything that was thrown, as the protocol tells it. */
export function toConnectError(error: unknown): ConnectError {
  if (error instanceof ConnectError) return error;
  if (error instanceof EnvdError)
    return new ConnectError(error.message, CODE[error.kind], undefined, undefined, error);
  const code = isSystemError(error, ...EXHAUSTED) ? Code.ResourceExhausted : Code.Internal;
  return new ConnectError(messageOf(error), code, undefined, undefined, error);
}
