import { describe, expect, test } from 'vitest';
import {
  choice,
  flag,
  list,
  nonEmptyList,
  object,
  parameter,
  positive,
  requiredText,
  sent,
  text,
} from '../../../src/base/shape.ts';

const BODY = object({
  name: text,
  parts: nonEmptyList(requiredText),
  inner: list(object({ key: requiredText })),
});

test('a shape tells its schema', () => {
  expect(BODY.schema).toEqual({
    type: 'object',
    required: ['parts'],
    properties: {
      name: { type: 'string' },
      parts: { type: 'array', minItems: 1, items: { type: 'string' } },
      inner: {
        type: 'array',
        items: { type: 'object', required: ['key'], properties: { key: { type: 'string' } } },
      },
    },
  });
  expect(choice(['a', 'b'], 'a').schema).toEqual({ enum: ['a', 'b'], default: 'a' });
  expect(choice(['a', 'b'], null).schema).toEqual({ enum: ['a', 'b'] });
});

test('members that are absent are null, and unknown ones are left out', () => {
  expect(BODY.read({ parts: ['x'], other: 1 }, '')).toEqual({ name: null, parts: ['x'], inner: null });
});

test('members of the prototype are not read', () => {
  expect(object({ toString: text }).read({}, '').toString).toBeNull();
});

describe('errors name the member', () => {
  test.each([
    [7, 'request body must be an object'],
    [{}, 'parts must be an array that is not empty'],
    [{ parts: [] }, 'parts must be an array that is not empty'],
    [{ parts: 'a' }, 'parts must be an array'],
    [{ parts: [''] }, 'parts[0] must be a string that is not empty'],
    [{ parts: ['a'], inner: [{}, {}] }, 'inner[0].key must be a string that is not empty'],
    [{ parts: ['a'], name: 'a\0' }, 'name must be a string without NUL'],
  ])('%j', (body, message) => {
    expect(() => BODY.read(body, '')).toThrow(expect.objectContaining({ kind: 'invalid_argument', message }));
  });
});

describe('a query', () => {
  const query = object({
    path: parameter,
    until: sent({ type: 'integer' }),
    mode: choice(['slow', 'fast'], 'slow'),
    all: flag,
    most: positive(5),
  });

  test('has defaults', () => {
    const absent = { path: undefined, until: undefined, mode: 'slow', all: false, most: 5 };
    expect(query.read({}, '')).toEqual(absent);
    expect(query.read({ mode: '', most: '' }, '')).toEqual(absent);
    expect(query.read({ most: '-3' }, '')).toEqual(absent);
  });

  test('is converted', () => {
    const sentQuery = { path: '', until: 'x', mode: 'fast', all: 'true', most: '7' };
    expect(query.read(sentQuery, '')).toEqual({ ...sentQuery, all: true, most: 7 });
  });

  test.each([
    [{ path: ['a', 'b'] }, 'path must be given once'],
    [{ most: ['1', '2'] }, 'most must be given once'],
    [{ mode: 'eager' }, "mode must be one of slow, fast, not 'eager'"],
    [{ all: '' }, "all must be true or false, not ''"],
    [{ most: '1.5' }, "most must be a whole number, not '1.5'"],
  ])('%j is refused', (given, message) => {
    expect(() => query.read(given, '')).toThrow(
      expect.objectContaining({ kind: 'invalid_argument', message }),
    );
  });
});
