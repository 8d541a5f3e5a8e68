import { fstatSync, openSync } from 'node:fs';
import { expect, test } from 'vitest';
import { RecordMemory, textsIn } from '../../../../../src/daemon/linux/memory/record-memory.ts';

/** As another program finds them. */
function found(memory: RecordMemory): string[] {
  return textsIn(openSync(`/proc/self/fd/${memory.descriptor}`, 'r'));
}

const residentBytes = ({ descriptor }: RecordMemory) => fstatSync(descriptor ?? -1).blocks * 512;

test('texts are found until they are removed', () => {
  const memory = new RecordMemory();
  expect(found(memory)).toEqual([]);
  const slots = ['one', 'ü'.repeat(510), '', 'last'].map((text) => memory.put(text) ?? -1);
  expect(new Set(slots).size).toBe(4);
  expect(found(memory)).toEqual(['one', 'ü'.repeat(510), 'last']);
  memory.remove(slots[1] ?? -1);
  expect(found(memory)).toEqual(['one', 'last']);
  expect(memory.put('next')).toBe(slots[1]);
  expect(found(memory)).toEqual(['one', 'next', 'last']);
});

test('a text that does not fit is refused', () => {
  expect(new RecordMemory().put('ü'.repeat(511))).toBeNull();
});

test('its pages are given back when it is empty', () => {
  const memory = new RecordMemory();
  const slots = Array.from({ length: 1000 }, () => memory.put('x') ?? -1);
  expect(residentBytes(memory)).toBeGreaterThan(500_000);
  for (const slot of slots) memory.remove(slot);
  expect(residentBytes(memory)).toBeLessThan(10_000);
  expect(memory.put('again')).toBe(slots[0]);
  expect(found(memory)).toEqual(['again']);
});
