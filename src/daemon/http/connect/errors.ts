import { Code, ConnectError } from '@connectrpc/connect';
import { codeToString } from '@connectrpc/connect/protocol-connect';
import { connectCodeOf, EnvdError, messageOf } from '../../../base/errors.ts';
import { exhaustionOf } from '../../linux/system/errno.ts';
import type { CallScope } from '../admission/call-scope.ts';

/** Converts any thrown value to an error of Connect. */
export function toConnectError(error: unknown): ConnectError {
  if (error instanceof ConnectError) {
    const { rawMessage, code, metadata } = error;
    const text = messageOf(rawMessage);
    return text === rawMessage ? error : new ConnectError(text, code, metadata, undefined, error);
  }
  const kind = error instanceof EnvdError ? error.kind : (exhaustionOf(error) ?? 'internal');
  return new ConnectError(messageOf(error), Code[connectCodeOf(kind)], undefined, undefined, error);
}

/** The name of the Connect code of an error, for the log. */
function codeNameOf(error: unknown): string {
  return codeToString(toConnectError(error).code);
}

/** Stores the error for the log line of the operation. */
export function recordFailure(call: CallScope, error: unknown): void {
  call.failure = error;
  call.rpcCode = codeNameOf(error);
}
