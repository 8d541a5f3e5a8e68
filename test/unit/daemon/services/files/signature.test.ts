import { describe, expect, test } from 'vitest';
import { signFile } from '../../../../../src/conformance/suite/sign-file.ts';
import { authorizeFile } from '../../../../../src/daemon/services/files/authorize.ts';
import { type FileQuery, verifySignature } from '../../../../../src/daemon/services/files/signature.ts';

const TOKEN = '0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0';
const FILE = { path: 'hello.txt', operation: 'read', username: 'user', token: TOKEN } as const;
const VECTOR = 'v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E';
const NOW = 1_800_000_000;

type Request = Omit<FileQuery, 'presentedToken'> & Parameters<typeof signFile>[0] & { readonly now: number };
const verify = (request: Request) => verifySignature(request, request.operation, request.token, request.now);
const unsigned = { ...FILE, signature: undefined, expiration: undefined, now: NOW };

describe('signature', () => {
  test('equals the published test vector', () => {
    expect(signFile({ ...FILE, expiration: undefined })).toBe(VECTOR);
    verify({ ...unsigned, signature: VECTOR });
  });

  test.each([
    ['path', { path: 'hello.tx' }],
    ['operation', { operation: 'write' as const }],
    ['user', { username: '' }],
    ['token', { token: `${TOKEN}x` }],
    ['expiration', { expiration: String(NOW + 10) }],
    ['signature', { signature: VECTOR.slice(0, -1) }],
    ['padding', { signature: `${VECTOR}=` }],
    ['emptiness', { signature: '' }],
  ])('with another %s is refused', (_name, change) => {
    const request = { ...unsigned, signature: VECTOR, ...change };
    expect(() => verify(request)).toThrow(
      expect.objectContaining({ kind: 'unauthenticated', message: 'invalid signature' }),
    );
  });

  test('that is missing is refused with a reason', () => {
    expect(() => verify(unsigned)).toThrow(
      expect.objectContaining({ kind: 'unauthenticated', message: 'missing signature query parameter' }),
    );
  });

  test('is valid until its expiration', () => {
    const at = (expiration: string) => {
      const signature = signFile({ ...FILE, expiration });
      verify({ ...unsigned, signature, expiration });
    };
    at(String(NOW));
    at(String(NOW + 1));
    expect(() => at(String(NOW - 1))).toThrow(
      expect.objectContaining({ kind: 'unauthenticated', message: 'signature is already expired' }),
    );
    expect(() => at('soon')).toThrow(expect.objectContaining({ kind: 'invalid_argument' }));
  });

  test('is checked before the expiration', () => {
    const request = { ...unsigned, signature: VECTOR, expiration: String(NOW - 1) };
    expect(() => verify(request)).toThrow('invalid signature');
  });
});

const authorize = (accessToken: string | null, query: FileQuery) =>
  authorizeFile({ accessToken, isOpen: accessToken === null }, query, 'read');

describe('authorization', () => {
  const credentials = {
    path: 'hello.txt',
    username: 'user',
    signature: undefined,
    expiration: undefined,
    presentedToken: undefined,
  } as const;

  test('allows everything while no token is set', () => {
    const wrong = { ...credentials, presentedToken: 'wrong', signature: 'wrong' };
    for (const shown of [credentials, wrong]) expect(() => authorize(null, shown)).not.toThrow();
  });

  test('with a token does not consider the signature', () => {
    authorize(TOKEN, { ...credentials, presentedToken: TOKEN, signature: 'wrong' });
    expect(() => authorize(TOKEN, { ...credentials, presentedToken: 'wrong', signature: VECTOR })).toThrow(
      expect.objectContaining({
        kind: 'unauthenticated',
        message: 'access token present in header but does not match',
      }),
    );
  });

  test('without a token uses the signature', () => {
    authorize(TOKEN, { ...credentials, signature: VECTOR });
    expect(() => authorize(TOKEN, credentials)).toThrow('missing signature query parameter');
    const expiration = '1000';
    const signature = signFile({ ...FILE, expiration });
    expect(() => authorize(TOKEN, { ...credentials, signature, expiration })).toThrow(
      'signature is already expired',
    );
  });
});
