import { describe, expect, test } from 'vitest';
import { canonicalName, decodeName, encodeName } from '../../../../../src/daemon/linux/paths/names.ts';

const bytes = (...values: number[]) => Buffer.from(values);

describe('encodeName', () => {
  test.each([
    ['ASCII', Buffer.from('plain'), 'plain'],
    ['UTF-8', Buffer.from('café 😀'), 'café 😀'],
    ['nothing', bytes(), ''],
    ['Latin-1', Buffer.from('café', 'latin1'), 'caf\uefe9'],
    ['a cut character', bytes(0x61, 0xf0, 0x9f, 0x98), 'a\ueff0\uef9f\uef98'],
    ['a cut character before a letter', bytes(0xc3, 0x61), '\uefc3a'],
    ['continuation bytes', bytes(0x80, 0xbf), '\uef80\uefbf'],
    ['an overlong form', bytes(0xc0, 0xaf), '\uefc0\uefaf'],
    ['a surrogate', bytes(0xed, 0xa0, 0x80), '\uefed\uefa0\uef80'],
    ['an escape itself', Buffer.from('\uefe9'), '\uefee\uefbf\uefa9'],
    ['the characters beside the escapes', Buffer.from('\uef7f\uf000'), '\uef7f\uf000'],
    ['the replacement character', Buffer.from('\ufffd'), '\ufffd'],
    ['it beside an invalid byte', Buffer.concat([Buffer.from('\ufffd'), bytes(0xff)]), '\ufffd\uefff'],
  ])('tells %s', (_, name, text) => {
    expect(encodeName(name)).toBe(text);
    expect(decodeName(text)).toEqual(name);
  });

  test('is reversible for any bytes', () => {
    for (let round = 0; round < 20_000; round++) {
      const name = Buffer.from(
        Array.from({ length: 1 + (round % 9) }, () => RANGE[Math.floor(Math.random() * RANGE.length)] ?? 0),
      );
      expect(decodeName(encodeName(name)).equals(name), name.toString('hex')).toBe(true);
    }
  });
});

/** Bytes at which UTF-8 decides. */
const RANGE = [
  0x2e, 0x2f, 0x61, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbe, 0xbf, 0xc0, 0xc2, 0xc3, 0xdf, 0xe0, 0xe2, 0xed, 0xee,
  0xef, 0xf0, 0xf4, 0xf5, 0xff,
];

test('a text that spells valid UTF-8 in escapes means the same name as that', () => {
  expect(decodeName('\uefc3\uefa9')).toEqual(Buffer.from('é'));
  expect(canonicalName('/a/\uefc3\uefa9')).toBe('/a/é');
});

test('no text means a separator or NUL that it does not show', () => {
  for (let code = 0xef00; code <= 0xefff; code++) {
    const name = decodeName(String.fromCharCode(code));
    expect([0x00, 0x2e, 0x2f].some((byte) => name.includes(byte))).toBe(false);
  }
});
