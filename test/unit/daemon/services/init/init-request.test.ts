import { describe, expect, test } from 'vitest';
import { parseInitRequest } from '../../../../../src/daemon/services/init/init-request.ts';

const NOTHING = {
  accessToken: null,
  timestampNs: null,
  environment: null,
  defaultUser: null,
  defaultWorkdir: null,
  caBundle: null,
  hyperloopIP: null,
  lifecycleID: null,
  volumeMounts: null,
};

test('an empty object tells nothing', () => {
  expect(parseInitRequest({})).toEqual(NOTHING);
});

test('null and empty texts count as absent, unknown members as a newer platform’s', () => {
  const body = { accessToken: '', timestamp: null, envVars: null, defaultUser: null, newer: { than: 'us' } };
  expect(parseInitRequest(body)).toEqual(NOTHING);
});

test('every member', () => {
  const body = {
    accessToken: 'token',
    timestamp: '1970-01-01T00:00:01.5Z',
    envVars: { A: 'b', EMPTY: '' },
    defaultUser: 'ada',
    defaultWorkdir: '/work',
    caBundle: '-----BEGIN CERTIFICATE-----',
    hyperloopIP: '192.0.2.1',
    lifecycleID: 'id',
    volumeMounts: [{ nfs_target: 'host:/export', path: '/mnt' }],
  };
  expect(parseInitRequest(body)).toEqual({
    accessToken: 'token',
    timestampNs: 1_500_000_000n,
    environment: { A: 'b', EMPTY: '' },
    defaultUser: 'ada',
    defaultWorkdir: '/work',
    caBundle: '-----BEGIN CERTIFICATE-----',
    hyperloopIP: '192.0.2.1',
    lifecycleID: 'id',
    volumeMounts: [{ nfsTarget: 'host:/export', path: '/mnt' }],
  });
});

test('a variable may be called like what every object has', () => {
  const { environment } = parseInitRequest(JSON.parse('{"envVars": {"__proto__": "x", "constructor": "y"}}'));
  expect(Object.entries(environment ?? {})).toEqual([
    ['__proto__', 'x'],
    ['constructor', 'y'],
  ]);
});

describe('refuses, naming the member', () => {
  test.each([
    [[], 'request body must be an object'],
    [null, 'request body must be an object'],
    ['text', 'request body must be an object'],
    [{ accessToken: 5 }, 'accessToken must be a string without NUL'],
    [{ accessToken: 'a\0b' }, 'accessToken must be a string without NUL'],
    [{ timestamp: 5 }, 'timestamp must be a string without NUL'],
    [{ timestamp: 'noon' }, "timestamp must be an RFC 3339 time: 'noon'"],
    [{ envVars: [] }, 'envVars must be an object'],
    [{ envVars: { A: 1 } }, "envVars['A'] must be a string without NUL"],
    [{ envVars: { A: null } }, "envVars['A'] must be a string without NUL"],
    [{ envVars: { A: '\0' } }, "envVars['A'] must be a string without NUL"],
    [{ envVars: { 'A=B': '' } }, "envVars['A=B'] must be named without = and NUL"],
    [{ envVars: { '': '' } }, "envVars[''] must be named without = and NUL"],
    [{ defaultUser: {} }, 'defaultUser must be a string without NUL'],
    [{ defaultWorkdir: true }, 'defaultWorkdir must be a string without NUL'],
    [{ volumeMounts: {} }, 'volumeMounts must be an array'],
    [{ volumeMounts: ['x'] }, 'volumeMounts[0] must be an object'],
    [{ volumeMounts: [{ path: '/x' }] }, 'volumeMounts[0].nfs_target must be a string that is not empty'],
    [
      { volumeMounts: [{ nfs_target: 'h:/', path: '' }] },
      'volumeMounts[0].path must be a string that is not empty',
    ],
  ])('%j', (body, message) => {
    expect(() => parseInitRequest(body)).toThrow(
      expect.objectContaining({ kind: 'invalid_argument', message }),
    );
  });
});
