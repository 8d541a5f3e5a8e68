import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { Printer } from '../../../src/cli/output/printer.ts';

test('a table of 150,000 rows', async () => {
  let lines = 0;
  const stream = new Writable({
    write(piece, _encoding, done) {
      lines += String(piece).split('\n').length - 1;
      done();
    },
  });
  const rows = Array.from({ length: 150_000 }, (_, index) => [String(index)]);
  await new Printer(stream, stream).table([{ title: 'ROW', align: 'right' }], rows);
  expect(lines).toBe(150_001);
});
