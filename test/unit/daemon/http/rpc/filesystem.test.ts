import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Code, createClient, createRouterTransport } from '@connectrpc/connect';
import { setAttributeSync } from 'fs-xattr';
import { expect, test } from 'vitest';
import { filesystemRpcs } from '../../../../../src/daemon/http/rpc/filesystem.ts';
import { Guest } from '../../../../../src/daemon/services/guest/guest.ts';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';
import { Filesystem, FileType } from '../../../../../src/gen/filesystem/filesystem_pb.js';
import { addPlainRpcs } from '../../../../support/clients/plain-rpcs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { PASSWD, testUsers } from '../../../../support/machine/users.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

/** A client of the service on a real directory, the home of the calling user ada. */
function setUp() {
  const home = scratch();
  const database = scratch();
  const users = testUsers(database);
  writeFileSync(join(database, 'passwd'), PASSWD.replace('/home/ada', home));
  const guest = new Guest(users);
  guest.defaultUser = 'ada';
  const entries = { users, lanes: testLanes, metadataPrefix: 'user.svc.' };
  const rpcs = filesystemRpcs({ guest, entries, gate: new WriteGate() });
  const transport = createRouterTransport((router) => addPlainRpcs(router, rpcs));
  return { home, guest, client: createClient(Filesystem, transport) };
}

test('Stat returns all members', async () => {
  const { home, client } = setUp();
  writeFileSync(join(home, 'file'), 'abc');
  setAttributeSync(join(home, 'file'), 'user.svc.k', 'v');
  symlinkSync('file', join(home, 'link'));
  const { entry } = await client.stat({ path: 'file' });
  expect(entry).toMatchObject({
    name: 'file',
    type: FileType.FILE,
    path: join(home, 'file'),
    size: 3n,
    mode: 0o644,
    permissions: '-rw-r--r--',
    owner: 'root',
    group: 'root',
    metadata: { k: 'v' },
  });
  expect(entry?.symlinkTarget).toBeUndefined();
  const link = (await client.stat({ path: '~/link' })).entry;
  expect(link).toMatchObject({ type: FileType.FILE, symlinkTarget: join(home, 'file') });
});

test('an empty path is the default directory, or else the home directory', async () => {
  const { home, guest, client } = setUp();
  expect((await client.stat({})).entry?.path).toBe(home);
  mkdirSync(join(home, 'work/x'), { recursive: true });
  guest.defaultWorkdir = join(home, 'work');
  expect((await client.stat({})).entry?.path).toBe(join(home, 'work'));
  expect((await client.listDir({})).entries.map(({ name }) => name)).toEqual(['x']);
});

test('ListDir returns the requested number of levels', async () => {
  const { home, client } = setUp();
  mkdirSync(join(home, 'a/b/c'), { recursive: true });
  const names = async (depth: number) =>
    (await client.listDir({ path: home, depth })).entries.map(({ name }) => name);
  expect(await names(0)).toEqual(['a']);
  expect(await names(1)).toEqual(['a']);
  expect(await names(2)).toEqual(['a', 'b']);
  expect(await names(0xffff_ffff)).toEqual(['a', 'b', 'c']);
});

test('MakeDir, Move and Remove succeed', async () => {
  const { home, client } = setUp();
  const made = await client.makeDir({ path: 'x/y' });
  expect(made.entry).toMatchObject({ type: FileType.DIRECTORY, owner: 'ada', group: 'pioneers' });
  const moved = await client.move({ source: 'x/y', destination: 'z/w' });
  expect(moved.entry).toMatchObject({ path: join(home, 'z/w') });
  await client.remove({ path: 'z' });
  expect(readdirSync(home)).toEqual(['x']);
});

test('errors have the codes of the contract', async () => {
  const { home, client } = setUp();
  writeFileSync(join(home, 'file'), '');
  mkdirSync(join(home, 'directory'));
  symlinkSync('cycle', join(home, 'cycle'));
  const codes = [
    [() => client.stat({ path: 'nothing' }), Code.NotFound],
    [() => client.stat({ path: '~bob' }), Code.InvalidArgument],
    [() => client.listDir({ path: 'file' }), Code.InvalidArgument],
    [() => client.listDir({ path: 'cycle' }), Code.FailedPrecondition],
    [() => client.makeDir({ path: 'directory' }), Code.AlreadyExists],
    [() => client.makeDir({ path: 'file' }), Code.InvalidArgument],
    [() => client.move({ source: 'nothing', destination: 'x' }), Code.NotFound],
  ] as const;
  for (const [call, code] of codes) await expect(call()).rejects.toMatchObject({ code });
});
