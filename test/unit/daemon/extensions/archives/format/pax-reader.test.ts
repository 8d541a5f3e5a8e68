import { expect, test } from 'vitest';
import { EnvdError } from '../../../../../../src/base/errors.ts';
import { readPax } from '../../../../../../src/daemon/extensions/archives/format/pax-reader.ts';

function read(body: string): [string, string][] {
  const records = new Map<string, string>();
  readPax(Buffer.from(body, 'latin1'), records, (problem) => {
    throw new EnvdError('invalid_argument', problem);
  });
  return [...records];
}

test('records are a length in bytes, a blank, the key, an equals sign, the value and a line feed', () => {
  expect(read('')).toEqual([]);
  expect(read('8 a=b=c\n00000015 b=1\n2\n')).toEqual([
    ['a', 'b=c'],
    ['b', '1\n2'],
  ]);
});

test.each([
  ['digits that others follow', '00000018xyz a=bcd\n'],
  ['no digits', ' a=b\n'],
  ['no blank', '5a=b\n'],
  ['another length', '7 a=b\n'],
  ['a length of 0', '0 a=b\n'],
  ['no equals sign', '6 abc\n'],
  ['no line feed', '6 a=b '],
])('%s: the record is malformed', (_name, body) => {
  expect(() => read(body)).toThrow('a record of the extended header is malformed');
});
