import { describe, expect, test } from 'vitest';
import { INIT_REQUEST } from '../../../../../src/daemon/services/init/init-request.ts';

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

test('an empty object has no members', () => {
  expect(INIT_REQUEST.read({}, '')).toEqual(NOTHING);
});

test('null and empty strings count as missing, and unknown members are ignored', () => {
  const body = { accessToken: '', timestamp: null, envVars: null, defaultUser: null, newer: { than: 'us' } };
  expect(INIT_REQUEST.read(body, '')).toEqual(NOTHING);
});

test('every member is read', () => {
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
  expect(INIT_REQUEST.read(body, '')).toEqual({
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

test('a variable may have the name of a member that every object has', () => {
  const { environment } = INIT_REQUEST.read(
    JSON.parse('{"envVars": {"__proto__": "x", "constructor": "y"}}'),
    '',
  );
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
    [{ envVars: { 'A=B': '' } }, "envVars['A=B'] must be a non-empty name without = and NUL"],
    [{ envVars: { '': '' } }, "envVars[''] must be a non-empty name without = and NUL"],
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
    expect(() => INIT_REQUEST.read(body, '')).toThrow(
      expect.objectContaining({ kind: 'invalid_argument', message }),
    );
  });
});

test.each([
  ['2026-01-31T12:00:00Z', '2026-01-31T12:00:00.000Z', 0n],
  ['2026-01-31t12:00:00.5z', '2026-01-31T12:00:00.500Z', 0n],
  ['2026-01-31T12:00:00.123456789Z', '2026-01-31T12:00:00.123Z', 456_789n],
  ['2026-01-31T12:00:00.1234567899999Z', '2026-01-31T12:00:00.123Z', 456_789n],
  ['2026-01-31T12:00:00+05:30', '2026-01-31T06:30:00.000Z', 0n],
  ['2026-01-31T12:00:00.25-08:00', '2026-01-31T20:00:00.250Z', 0n],
  ['2024-02-29T23:59:59Z', '2024-02-29T23:59:59.000Z', 0n],
  ['1969-12-31T23:59:59.75Z', '1969-12-31T23:59:59.750Z', 0n],
  ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z', 0n],
])('timestamp %s', (text, iso, rest) => {
  expect(INIT_REQUEST.read({ timestamp: text }, '').timestampNs).toBe(
    BigInt(Date.parse(iso)) * 1_000_000n + rest,
  );
});

test.each([
  'now',
  '1700000000',
  '2026-01-31',
  '2026-01-31T12:00:00',
  '2026-01-31 12:00:00Z',
  '2026-13-01T00:00:00Z',
  '2026-02-30T00:00:00Z',
  '2026-01-31T24:00:00Z',
  '2026-01-31T12:60:00Z',
  '2026-01-31T12:00:60Z',
  '2026-01-31T12:00:00.Z',
  '2026-01-31T12:00:00+24:00',
  '2026-01-31T12:00:00Z\n',
])('refuses the timestamp %j', (text) => {
  expect(() => INIT_REQUEST.read({ timestamp: text }, '')).toThrow(
    expect.objectContaining({
      kind: 'invalid_argument',
      message: `timestamp must be an RFC 3339 time: '${text}'`,
    }),
  );
});
