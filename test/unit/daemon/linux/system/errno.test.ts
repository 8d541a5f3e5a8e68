import { constants } from 'node:os';
import { describe, expect, test } from 'vitest';
import { EnvdError, type ErrorKind } from '../../../../../src/base/errors.ts';
import { toConnectError } from '../../../../../src/daemon/http/admission/errors.ts';
import { exhaustionOf, explain, isOutOfSpace } from '../../../../../src/daemon/linux/system/errno.ts';

function failure(code: string): Error {
  return Object.assign(new Error(`${code}: some text, open '/internal'`), {
    ...{ code, errno: -1, syscall: 'open', path: '/internal' },
  });
}

const MEANINGS: Readonly<Record<string, ErrorKind>> = {
  ENOENT: 'not_found',
  ENOTDIR: 'not_found',
  EEXIST: 'already_exists',
  ENOTEMPTY: 'already_exists',
  EISDIR: 'invalid_argument',
  EINVAL: 'invalid_argument',
  ESPIPE: 'invalid_argument',
  ENAMETOOLONG: 'invalid_argument',
  EFBIG: 'invalid_argument',
  ELOOP: 'failed_precondition',
  EBUSY: 'failed_precondition',
  ETXTBSY: 'failed_precondition',
  ENXIO: 'failed_precondition',
  EPIPE: 'failed_precondition',
  ENOTCONN: 'failed_precondition',
  EACCES: 'permission_denied',
  EPERM: 'permission_denied',
  ETIMEDOUT: 'deadline_exceeded',
  EAGAIN: 'deadline_exceeded',
  EROFS: 'permission_denied',
  ENOSPC: 'no_space',
  EDQUOT: 'no_space',
  EMFILE: 'resource_exhausted',
  ENFILE: 'resource_exhausted',
  EOVERFLOW: 'resource_exhausted',
  ENOMEM: 'resource_exhausted',
};

describe.each(['find', 'make'] as const)('explain, for a path to %s', (purpose) => {
  const made: Readonly<Record<string, ErrorKind>> = purpose === 'make' ? { ENOTDIR: 'invalid_argument' } : {};

  test.each(Object.entries({ ...MEANINGS, ...made }))('%s is %s', (code, kind) => {
    const cause = failure(code);
    const error = explain(cause, "the client's", purpose);
    expect(error).toBeInstanceOf(EnvdError);
    expect(error).toMatchObject({
      kind,
      cause,
      message: expect.stringMatching(/^[a-z -]+: 'the client's'$/),
    });
  });

  test('any other system error is named by its code, and what is none is returned unchanged', () => {
    const others = Object.keys(constants.errno).filter((code) => !(code in MEANINGS));
    expect(others.length).toBeGreaterThan(50);
    for (const code of others) {
      const kind = code === 'EBADF' || code === 'EFAULT' ? 'internal' : 'failed_precondition';
      const expected = { kind, message: `${code} at path: '/path'` };
      expect(explain(failure(code), '/path', purpose)).toMatchObject(expected);
    }
    for (const error of [new Error('x'), 'thrown', null])
      expect(explain(error, '/path', purpose)).toBe(error);
  });
});

test.each(Object.entries(MEANINGS))('%s without a path is a resource error or internal', (code, kind) => {
  const isExhaustion = kind === 'no_space' || kind === 'resource_exhausted';
  expect(exhaustionOf(failure(code))).toBe(isExhaustion ? kind : null);
  expect(isOutOfSpace(failure(code))).toBe(kind === 'no_space');
  const told = isExhaustion ? kind : 'internal';
  expect(toConnectError(failure(code))).toMatchObject({
    code: toConnectError(new EnvdError(told, 'x')).code,
    rawMessage: `${code}: some text, open '/internal'`,
  });
});
