import assert from 'node:assert/strict';
import { posix } from 'node:path';
import { memberPath } from '../../../src/daemon/extensions/archives/unpack/member-path.ts';
import { resolvePath } from '../../../src/daemon/linux/paths/paths.ts';
import { unlessRefused } from '../refused.ts';

/** Paths of clients and names in archives. Lines: path, home, default directory. */
export function fuzz(data: Buffer): void {
  const [path = '', ...others] = data.toString('utf8').split('\n');
  const [home = '', workdir = ''] = others.map((text) => text.replaceAll('\0', ''));
  const user = { name: 'u', uid: 1, gid: 1, groups: [1], home, shell: '/bin/sh' };
  const absolute = unlessRefused(() => resolvePath(path, user, workdir || null));
  if (absolute !== null) {
    assert(absolute.startsWith('/') && !absolute.includes('\0'));
    assert.equal(posix.resolve(absolute), absolute);
    if (path.startsWith('/')) assert.equal(absolute, posix.resolve(path));
  }
  const parts = unlessRefused(() => memberPath(data.toString('latin1')));
  for (const part of parts ?? []) assert(part !== '' && part !== '.' && part !== '..' && !part.includes('/'));
}
