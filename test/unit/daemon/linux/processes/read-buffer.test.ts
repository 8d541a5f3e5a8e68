import { closeSync, writeSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ReadBuffer, readInFlight } from '../../../../../src/daemon/linux/processes/read-buffer.ts';
import { native } from '../../../../../src/daemon/linux/system/native.ts';

const PIPE = 3;

test('what was on its way when the program was killed is found: in the pipe between, or in the buffer', () => {
  const buffer = new ReadBuffer();
  const transit = native.createPipe();
  const inFlight = () => readInFlight(buffer.descriptor ?? -1, transit.read);
  buffer.room.writeUInt32LE(PIPE, 0);
  buffer.own(PIPE, { process: 7, stream: 1, offset: 100 });
  expect(inFlight()).toBe(null);
  writeSync(transit.write, 'between');
  const origin = { process: 7, stream: 1, offset: 100 };
  expect(inFlight()).toEqual({ ...origin, bytes: Buffer.from('between') });
  buffer.room.write('in the buffer', 8);
  buffer.room.writeUInt32LE(6, 4);
  expect(inFlight()).toEqual({ ...origin, bytes: Buffer.from('in the') });
  buffer.taken(PIPE, 6);
  expect(inFlight()).toBe(null);
  for (const end of Object.values(transit)) closeSync(end);
});
