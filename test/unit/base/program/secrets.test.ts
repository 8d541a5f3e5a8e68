import { expect, test } from 'vitest';
import { equalSecrets, headerOfSecret, isInHeader } from '../../../../src/base/program/secrets.ts';

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

test.each([
  ['token', 'token', true],
  ['tök', 'tök', true],
  ['tök€', headerOfSecret('tök€'), true],
  ['tök', 'tok', false],
  ['tök€', 'tök\u00ac', false],
])('%j is in the header %j: %s', (secret, header, is) => {
  expect(isInHeader(secret, header)).toBe(is);
});
