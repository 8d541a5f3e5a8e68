import { Code } from '@connectrpc/connect';
import { describe, expect, test } from 'vitest';
import {
  connectCodeOf,
  EnvdError,
  type ErrorKind,
  HttpError,
  httpStatusOf,
} from '../../../src/base/errors.ts';

const KINDS: Readonly<Record<ErrorKind, readonly [status: number, code: Code]>> = {
  aborted: [409, Code.Aborted],
  already_exists: [409, Code.AlreadyExists],
  conflict: [409, Code.FailedPrecondition],
  deadline_exceeded: [504, Code.DeadlineExceeded],
  failed_precondition: [412, Code.FailedPrecondition],
  internal: [500, Code.Internal],
  invalid_argument: [400, Code.InvalidArgument],
  no_space: [507, Code.ResourceExhausted],
  not_acceptable: [406, Code.InvalidArgument],
  not_found: [404, Code.NotFound],
  permission_denied: [403, Code.PermissionDenied],
  resource_exhausted: [429, Code.ResourceExhausted],
  unauthenticated: [401, Code.Unauthenticated],
  unavailable: [503, Code.Unavailable],
  unimplemented: [501, Code.Unimplemented],
};

test.each(Object.entries(KINDS) as [ErrorKind, [number, Code]][])('%s maps to %j', (kind, [status, code]) => {
  expect(httpStatusOf(new EnvdError(kind, 'x'))).toBe(status);
  expect(Code[connectCodeOf(kind)]).toBe(code);
});

describe('the status of an error that is no EnvdError', () => {
  test.each([
    [new HttpError(405, 'x'), 405],
    [Object.assign(new Error('x'), { statusCode: 414 }), 414],
    [Object.assign(new Error('x'), { statusCode: 200 }), 500],
    [Object.assign(new Error('x'), { statusCode: '400' }), 500],
    [new Error('x'), 500],
    ['thrown', 500],
    [{ statusCode: 400 }, 500],
    [null, 500],
  ])('%o: %i', (error, status) => {
    expect(httpStatusOf(error)).toBe(status);
  });
});
