import { expect, test } from 'vitest';
import { equalSecrets } from '../../../src/base/secrets.ts';

test.each([
  ['', '', true],
  ['token', 'token', true],
  ['tökén', 'tökén', true],
  ['token', 'tokeN', false],
  ['token', 'token ', false],
  ['token', '', false],
  ['', 'token', false],
])('%j and %j are equal: %s', (a, b, equal) => {
  expect(equalSecrets(a, b)).toBe(equal);
});
