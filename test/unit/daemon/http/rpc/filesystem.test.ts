import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { Code, createClient, createHandlerContext, createRouterTransport } from '@connectrpc/connect';
import { setAttributeSync } from 'fs-xattr';
import { expect, test } from 'vitest';
import { toConnectError } from '../../../../../src/daemon/http/connect/errors.ts';
import { filesystemService } from '../../../../../src/daemon/http/rpc/filesystem.ts';
import { Guest } from '../../../../../src/daemon/services/guest/guest.ts';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';
import {
  Filesystem,
  FileType,
  ListDirRequestSchema,
} from '../../../../../src/gen/filesystem/filesystem_pb.js';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ADA, testUsers } from '../../../../support/machine/users.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

/** A client of the service on a real directory, the home of the calling user ada. */
function setUp() {
  const home = scratch();
  const users = testUsers(scratch());
  const guest = new Guest(users);
  const service = filesystemService({
    guest,
    entries: { users, lanes: testLanes, metadataPrefix: 'user.svc.' },
    gate: new WriteGate(),
    userOf: () => ({ ...ADA, home }),
  });
  const transport = createRouterTransport((router) => router.service(Filesystem, service), {
    router: {
      interceptors: [
        (next) => (request) =>
          next(request).catch((error: unknown) => {
            throw toConnectError(error);
          }),
      ],
    },
  });
  return { home, guest, service, client: createClient(Filesystem, transport) };
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

test('ListDir ends when the caller disconnects', async () => {
  const { home, service } = setUp();
  const context = createHandlerContext({
    service: Filesystem,
    method: Filesystem.method.listDir,
    protocolName: 'connect',
    requestMethod: 'POST',
    url: 'http://localhost/',
    requestSignal: AbortSignal.abort(new Error('gone')),
  });
  const request = create(ListDirRequestSchema, { path: home });
  await expect(service.listDir(request, context)).rejects.toThrow('gone');
});
