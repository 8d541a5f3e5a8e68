import { execFileSync } from 'node:child_process';
import { chmodSync, lstatSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { permissionString } from '../../../../../../src/daemon/services/files/entries/permissions.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';

function permissions(path: string): string {
  return permissionString(lstatSync(path).mode);
}

test.each([
  [0o644, '-rw-r--r--'],
  [0o000, '----------'],
  [0o777, '-rwxrwxrwx'],
  [0o4755, 'urwxr-xr-x'],
  [0o2755, 'grwxr-xr-x'],
  [0o6711, 'ugrwx--x--x'],
  [0o7000, 'ugt---------'],
])('a file with mode %o', (mode, text) => {
  const path = join(scratch(), 'file');
  writeFileSync(path, '');
  chmodSync(path, mode);
  expect(permissions(path)).toBe(text);
});

test.each([
  [0o755, 'drwxr-xr-x'],
  [0o1777, 'dtrwxrwxrwx'],
  [0o2770, 'dgrwxrwx---'],
])('a directory with mode %o', (mode, text) => {
  const path = join(scratch(), 'directory');
  mkdirSync(path);
  chmodSync(path, mode);
  expect(permissions(path)).toBe(text);
});

test('a link is shown as L', () => {
  const path = join(scratch(), 'link');
  symlinkSync('nowhere', path);
  expect(permissions(path)).toBe('Lrwxrwxrwx');
});

test('a fifo, a block and a character device', () => {
  const root = scratch();
  execFileSync('mkfifo', ['-m', '640', join(root, 'fifo')]);
  execFileSync('mknod', ['-m', '660', join(root, 'block'), 'b', '7', '0']);
  expect(permissions(join(root, 'fifo'))).toBe('prw-r-----');
  expect(permissions(join(root, 'block'))).toBe('Drw-rw----');
  expect(permissions('/dev/null')).toBe('Dcrw-rw-rw-');
});

test('a socket', async () => {
  const path = join(scratch(), 'socket');
  const server = createServer();
  await new Promise<void>((done) => server.listen(path, done));
  onTestFinished(() => void server.close());
  chmodSync(path, 0o600);
  expect(permissions(path)).toBe('Srw-------');
});

test('an unknown mode is shown as ?---------', () => {
  expect(permissionString(0)).toBe('?---------');
});
