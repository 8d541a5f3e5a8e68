import { expect, test } from 'vitest';
import { HeldOutput } from '../../../src/base/held-output.ts';

function setUp() {
  const written: string[] = [];
  return { written, output: new HeldOutput((lines) => written.push(lines)) };
}

test('lines are written at once, and those that were held when they are released', () => {
  const { written, output } = setUp();
  output.write('1\n');
  output.hold();
  output.write('2\n');
  output.write('3\n');
  expect(written).toEqual(['1\n']);
  expect(output.release()).toBe(0);
  expect(output.release()).toBe(0);
  output.write('4\n');
  expect(written).toEqual(['1\n', '2\n3\n', '4\n']);
});

test('no more is kept than fits, and the rest is counted', () => {
  const { written, output } = setUp();
  const line = 'x'.repeat(1000);
  output.hold();
  for (let i = 0; i < 1100; i++) output.write(line);
  expect(output.release()).toBe(1100 - 1048);
  expect(written).toEqual([line.repeat(1048)]);
  output.hold();
  expect(output.release()).toBe(0);
});
