import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readTokenFile } from '../../../../src/daemon/config/token-file.ts';
import { scratch } from '../../../support/machine/scratch.ts';

interface Attributes {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
}

function written(content: string | Buffer, { mode = 0o400, uid = 0, gid = 0 }: Attributes = {}): string {
  const path = join(scratch(), 'token');
  writeFileSync(path, content);
  chownSync(path, uid, gid);
  chmodSync(path, mode);
  return path;
}

test.each(['t0ken', 't0ken\n', 't0ken\r\n'])('the token of %j is read without its line end', (content) => {
  expect(readTokenFile(written(content))).toBe('t0ken');
});

test.each<readonly [string, string | Buffer]>([
  ['it is empty', ''],
  ['it is empty', '\n'],
  ['one line', 't0ken\n\n'],
  ['one line', 't0ken\nmore\n'],
  ['one line', ' t0ken'],
  ['one line', 't0ken \n'],
  ['one line', 't0ken\r'],
  ['one line', '\ufefft0ken'],
  ['one line', 't0k\0en'],
  ['one line', 't\u00f6ken'],
  ['more than 4096 bytes', 't'.repeat(5000)],
])('a file is refused because %s: %j', (reason, content) => {
  const read = () => readTokenFile(written(content));
  expect(read).toThrow(
    expect.objectContaining({ kind: 'failed_precondition', message: expect.stringContaining(reason) }),
  );
  // No error shows what may be a secret.
  expect(read).not.toThrow(/t0ken|tttt/);
});

test.each<readonly [string, Attributes]>([
  ['its mode is 0644', { mode: 0o644 }],
  ['its mode is 0604', { mode: 0o604 }],
  ['its mode is 0620', { mode: 0o620 }],
  ['its mode is 0402', { mode: 0o402 }],
  ['its group, gid 2002', { mode: 0o440, gid: 2002 }],
  ['its owner, uid 2001', { mode: 0o400, uid: 2001 }],
])('a file is refused because %s', (reason, attributes) => {
  expect(() => readTokenFile(written('t0ken', attributes))).toThrow(reason);
});

test.each([0o400, 0o600, 0o440])('a file of root with mode %o is read', (mode) => {
  expect(readTokenFile(written('t0ken', { mode }))).toBe('t0ken');
});

test('what is no regular file is refused at once, and a link to one is followed', () => {
  const directory = scratch();
  mkdirSync(join(directory, 'directory'));
  spawnSync('mkfifo', ['-m', '0600', join(directory, 'fifo')]);
  for (const name of ['directory', 'fifo'])
    expect(() => readTokenFile(join(directory, name))).toThrow('it is not a regular file');
  expect(() => readTokenFile('/dev/zero')).toThrow('it is not a regular file');
  expect(() => readTokenFile(join(directory, 'missing'))).toThrow('ENOENT');
  symlinkSync(written('t0ken'), join(directory, 'link'));
  expect(readTokenFile(join(directory, 'link'))).toBe('t0ken');
});
