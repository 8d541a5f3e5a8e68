import { expect, test } from 'vitest';
import { keepaliveMsOf } from '../../../../../src/daemon/http/protocol/request.ts';

test.each([
  ['50', 50_000],
  ['1', 1000],
  ['0090', 90_000],
  // The limit of setTimeout, 31 bits.
  ['99999999999', 2_147_483_000],
  // Invalid values: the default of 90 s.
  ['0', 90_000],
  ['-1', 90_000],
  ['1.5', 90_000],
  ['1e3', 90_000],
  ['', 90_000],
  ['soon', 90_000],
])('keepalive-ping-interval: %s', (value, milliseconds) => {
  expect(keepaliveMsOf({ 'keepalive-ping-interval': value })).toBe(milliseconds);
});

test('without the header the interval is the default', () => {
  expect(keepaliveMsOf({})).toBe(90_000);
});
