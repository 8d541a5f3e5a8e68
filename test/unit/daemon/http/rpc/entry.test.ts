import { toJson } from '@bufbuild/protobuf';
import { expect, test } from 'vitest';
import { entryToMessage } from '../../../../../src/daemon/http/rpc/entry.ts';
import type { Entry } from '../../../../../src/daemon/services/files/entries/entry.ts';
import { EntryInfoSchema } from '../../../../../src/gen/filesystem/filesystem_pb.js';

const ENTRY: Entry = {
  name: 'file',
  type: 'file',
  path: '/d/file',
  size: 5_000_000_000n,
  mode: 0o644,
  permissions: '-rw-r--r--',
  owner: 'ada',
  group: '2002',
  modifiedNs: 1_700_000_000_123_456_789n,
  symlinkTarget: null,
  metadata: { k: 'v' },
};

test('an entry in JSON has these members', () => {
  expect(toJson(EntryInfoSchema, entryToMessage(ENTRY))).toEqual({
    name: 'file',
    type: 'FILE_TYPE_FILE',
    path: '/d/file',
    size: '5000000000',
    mode: 0o644,
    permissions: '-rw-r--r--',
    owner: 'ada',
    group: '2002',
    modifiedTime: '2023-11-14T22:13:20.123456789Z',
    metadata: { k: 'v' },
  });
});

test('a link has a target', () => {
  expect(entryToMessage({ ...ENTRY, symlinkTarget: '/x' }).symlinkTarget).toBe('/x');
});

test.each([
  [0n, 0n, 0],
  [-1n, -1n, 999_999_999],
  [-1_750_000_000n, -2n, 250_000_000],
  [-2_000_000_000n, -2n, 0],
])('%d ns', (modifiedNs, seconds, nanos) => {
  expect(entryToMessage({ ...ENTRY, modifiedNs }).modifiedTime).toMatchObject({ seconds, nanos });
});
