import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { native } from '../../../src/daemon/linux/system/native.ts';

test('any length and byte is encoded, and nothing around the text is written', () => {
  const target = Buffer.alloc(1000);
  for (let length = 0; length < 600; length++) {
    const bytes = length < 256 ? Buffer.alloc(length, length) : randomBytes(length);
    const offset = length % 7;
    target.fill('#');
    const end = offset + native.encodeBase64(bytes, target, offset);
    expect(target.toString('latin1', 0, end)).toBe('#'.repeat(offset) + bytes.toString('base64'));
    expect(end - offset).toBe(Math.ceil(length / 3) * 4);
    expect(target.subarray(end).every((byte) => byte === 0x23)).toBe(true);
  }
  const all = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const length = native.encodeBase64(all, target, 0);
  expect(target.toString('latin1', 0, length)).toBe(all.toString('base64'));
});

test('a target that is too small is an error, and is not changed', () => {
  const target = Buffer.alloc(8, '#');
  expect(() => native.encodeBase64(Buffer.alloc(4), target, 1)).toThrow(RangeError);
  expect(() => native.encodeBase64(Buffer.alloc(0), target, 9)).toThrow(RangeError);
  expect(String(target)).toBe('########');
  expect(native.encodeBase64(Buffer.alloc(4), target, 0)).toBe(8);
});
