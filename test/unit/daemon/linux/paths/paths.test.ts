import { describe, expect, test } from 'vitest';
import { requirePathLength, resolvePath } from '../../../../../src/daemon/linux/paths/paths.ts';
import { ADA } from '../../../../support/machine/users.ts';

describe('resolvePath', () => {
  test.each([
    ['/absolute/file', '/absolute/file'],
    ['/a//b/./c/../d/', '/a/b/d'],
    ['/../..', '/'],
    ['/', '/'],
    ['relative/file', '/home/ada/relative/file'],
    ['../bob', '/home/bob'],
    ['.', '/home/ada'],
    ['~', '/home/ada'],
    ['~/', '/home/ada'],
    ['~/x', '/home/ada/x'],
    ['./~x', '/home/ada/~x'],
    ['a~', '/home/ada/a~'],
    [' ', '/home/ada/ '],
    ['', '/home/ada'],
  ])('%j is %j', (path, resolved) => {
    expect(resolvePath(path, ADA, null)).toBe(resolved);
  });

  test('takes the default directory for an empty path only', () => {
    expect(resolvePath('', ADA, '/srv/')).toBe('/srv');
    expect(resolvePath('', ADA, 'below')).toBe('/home/ada/below');
    expect(resolvePath('', ADA, '~/work')).toBe('/home/ada/work');
    expect(resolvePath('x', ADA, '/srv')).toBe('/home/ada/x');
  });

  test.each(['~bob', '~bob/x', '~~'])('refuses the home of another user: %j', (path) => {
    expect(() => resolvePath(path, ADA, null)).toThrow(
      expect.objectContaining({
        kind: 'invalid_argument',
        message: `cannot expand home of another user in path: '${path}'`,
      }),
    );
  });

  test('refuses a NUL byte', () => {
    expect(() => resolvePath('/a\0b', ADA, null)).toThrow(
      expect.objectContaining({ kind: 'invalid_argument', message: 'path contains a NUL byte' }),
    );
  });
});

test.each([
  ['a'.repeat(4095), null],
  ['a'.repeat(4096), 'it is longer than 4095 bytes'],
  ['é'.repeat(2047), null],
  ['é'.repeat(2048), 'it is longer than 4095 bytes'],
])('requirePathLength of %j', (path, message) => {
  const check = expect(() => requirePathLength(path, 'it'));
  if (message === null) check.not.toThrow();
  else check.toThrow(expect.objectContaining({ kind: 'invalid_argument', message }));
});

test('resolvePath refuses a path that no system call takes', () => {
  expect(() => resolvePath(`/${'a'.repeat(4095)}`, ADA, null)).toThrow('path is longer than 4095 bytes');
});
