import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  isOnNetwork,
  mountIdOf,
  mountOf,
  mountsBelow,
  readMounts,
} from '../../../../../src/daemon/linux/paths/mounts.ts';

const MOUNTINFO = `21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:20 / /proc rw - proc proc rw
23 21 0:30 / /mnt/with\\040blank rw shared:3 master:1 - nfs4 server:/x rw
24 21 0:31 / /mnt/with rw - fuse.bindfs /y rw
25 21 0:32 / /mnt/with/below rw - tmpfs tmpfs rw
26 21 0:33 / /mnt/k\\303\\244se rw - cifs //server/z rw
`;

test('mountinfo is parsed, and searched by path', () => {
  const directory = mkdtempSync(join(tmpdir(), 'envd-mounts-'));
  const file = join(directory, 'mountinfo');
  writeFileSync(file, MOUNTINFO);
  const mounts = readMounts(file);
  rmSync(directory, { recursive: true });
  expect(mounts).toEqual([
    { id: 21, parent: 1, content: '254:0 / ext4 /dev/vda', path: '/', kind: 'local' },
    { id: 22, parent: 21, content: '0:20 / proc proc', path: '/proc', kind: 'pseudo' },
    { id: 23, parent: 21, content: '0:30 / nfs4 server:/x', path: '/mnt/with blank', kind: 'network' },
    { id: 24, parent: 21, content: '0:31 / fuse.bindfs /y', path: '/mnt/with', kind: 'network' },
    { id: 25, parent: 21, content: '0:32 / tmpfs tmpfs', path: '/mnt/with/below', kind: 'local' },
    { id: 26, parent: 21, content: '0:33 / cifs //server/z', path: '/mnt/k\xc3\xa4se', kind: 'network' },
  ]);
  expect(mountOf(mounts, '/mnt/with blank/x')?.path).toBe('/mnt/with blank');
  expect(mountOf(mounts, '/mnt/with/x')?.path).toBe('/mnt/with');
  expect(mountOf(mounts, '/mnt/without')?.path).toBe('/');
  expect(mountsBelow(mounts, '/mnt/with').map((mount) => mount.path)).toEqual(['/mnt/with/below']);
  expect(mountsBelow(mounts, '/')).toHaveLength(5);
});

test('the mounts of this process are classified', async () => {
  expect(mountOf(readMounts(), '/proc/self')?.kind).toBe('pseudo');
  expect(await isOnNetwork('/tmp')).toBe(false);
  const descriptor = openSync('/proc/self', 'r');
  expect(readMounts().find(({ id }) => id === mountIdOf(descriptor))?.path).toBe('/proc');
  closeSync(descriptor);
});
