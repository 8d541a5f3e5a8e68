import { execFileSync } from 'node:child_process';
import { constants, createReadStream, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { writeFully } from '../../../../../src/daemon/linux/files/write-fully.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { quickFile } from '../../../../support/services/lanes.ts';

const openFile = (path: string, flags: string | number) => quickFile(openSync(path, flags));
const never = new AbortController().signal;
const pieces = (...texts: string[]) => texts.map((text) => Buffer.from(text));

test('writes at a position, or at the current one', async () => {
  const path = join(scratch(), 'file');
  await using file = openFile(path, 'w+');
  await writeFully(file, pieces('ab', '', 'cd'), null, never);
  await writeFully(file, pieces('ef'), null, never);
  await writeFully(file, pieces('X'), 1, never);
  await writeFully(file, [], 0, never);
  expect(readFileSync(path, 'utf8')).toBe('aXcdef');
});

test('waits for the reader of a full pipe', async () => {
  const path = join(scratch(), 'pipe');
  execFileSync('mkfifo', [path]);
  await using both = openFile(path, 'r+');
  await using writer = openFile(path, constants.O_WRONLY | constants.O_NONBLOCK);
  const batch = Array.from({ length: 40 }, (_, index) => Buffer.alloc(10_000, index));
  const written = writeFully(writer, batch, null, never);
  const read: Buffer[] = [];
  for await (const chunk of createReadStream('', { fd: both.fd, autoClose: false, end: 399_999 }))
    read.push(chunk);
  await written;
  expect(Buffer.concat(read).equals(Buffer.concat(batch))).toBe(true);
});

test('ends with the signal while a pipe stays full', async () => {
  const path = join(scratch(), 'pipe');
  execFileSync('mkfifo', [path]);
  await using _reader = openFile(path, 'r+');
  await using writer = openFile(path, constants.O_WRONLY | constants.O_NONBLOCK);
  const controller = new AbortController();
  const written = writeFully(writer, [Buffer.alloc(1_000_000)], null, controller.signal);
  setImmediate(() => controller.abort());
  await expect(written).rejects.toThrow('aborted');
});
