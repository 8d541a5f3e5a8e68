import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { filesUrl, uploadRaw } from '../../support/clients/files-client.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** The answer of each operation that can name `path`: `[code or status, text]`. */
function ways(path: string) {
  const { filesystem } = connectTo(daemon.url);
  const told = (error: unknown) => {
    const { code, rawMessage } = ConnectError.from(error);
    return [Code[code], rawMessage];
  };
  const rest = async (sent: Promise<Response>) => {
    const { code, message } = (await (await sent).json()) as { code: number; message: string };
    return [code, message];
  };
  const compose = (sources: readonly string[], destination: string) =>
    fetch(`${daemon.url}/files/compose`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ source_paths: sources, destination }),
    });
  return {
    stat: () => filesystem.stat({ path }).then(() => 'done', told),
    makeDir: () => filesystem.makeDir({ path }).then(() => 'done', told),
    remove: () => filesystem.remove({ path }).then(() => 'done', told),
    list: () => filesystem.listDir({ path }).then(() => 'done', told),
    watch: () => filesystem.createWatcher({ path }).then(() => 'done', told),
    moveFrom: () => filesystem.move({ source: path, destination: `${path}-2` }).then(() => 'done', told),
    download: () => rest(fetch(filesUrl(daemon, { path }))),
    upload: () => rest(uploadRaw(daemon, path, 'x')),
    composeFrom: () => rest(compose([path], join(scratch(), 'whole'))),
    composeTo: (source: string) => rest(compose([source], path)),
  };
}

describe('RPCs and /files report the same kernel error in the same words', () => {
  test('ENOTDIR: a path below a file is not found, and nothing can be created there', async () => {
    const directory = scratch();
    const file = join(directory, 'file');
    writeFileSync(file, '');
    const path = join(file, 'below');
    const to = ways(path);
    const missing = `path not found: '${path}'`;
    for (const way of [to.stat, to.list, to.watch, to.moveFrom])
      expect(await way()).toEqual(['NotFound', missing]);
    expect(await to.composeFrom()).toEqual([404, missing]);
    // The contract gives this text.
    expect(await to.download()).toEqual([404, `path '${path}' does not exist`]);

    expect(await to.makeDir()).toEqual(['InvalidArgument', `path is not a directory: '${path}'`]);
    const unmade = [400, `a part of the path is not a directory: '${path}'`];
    expect(await to.upload()).toEqual(unmade);
    writeFileSync(join(directory, 'source'), 'x');
    expect(await to.composeTo(join(directory, 'source'))).toEqual(unmade);
  });

  test('ELOOP: a cycle of links', async () => {
    const directory = scratch();
    symlinkSync('cycle', join(directory, 'cycle'));
    const below = join(directory, 'cycle/below');
    const text = (path: string) => `too many levels of symbolic links in path: '${path}'`;
    for (const way of [ways(below).stat, ways(below).list, ways(below).watch, ways(below).remove])
      expect(await way()).toEqual(['FailedPrecondition', text(below)]);
    const path = join(directory, 'cycle');
    for (const way of [ways(path).list, ways(path).watch])
      expect(await way()).toEqual(['FailedPrecondition', text(path)]);
    for (const way of [ways(path).download, ways(path).upload, ways(path).composeFrom])
      expect(await way()).toEqual([412, text(path)]);
    writeFileSync(join(directory, 'source'), 'x');
    expect(await ways(path).composeTo(join(directory, 'source'))).toEqual([412, text(path)]);
  });

  test('a path of more than PATH_MAX, which counts its end', async () => {
    const directory = scratch();
    const path = `${directory}${'/x'.repeat(2048)}`;
    const to = ways(path);
    const text = 'path is longer than 4095 bytes';
    for (const way of [to.stat, to.list, to.watch, to.makeDir, to.remove])
      expect(await way()).toEqual(['InvalidArgument', text]);
    expect(await to.moveFrom()).toEqual(['InvalidArgument', text]);
    for (const way of [to.download, to.upload]) expect(await way()).toEqual([400, text]);
    expect(await to.composeFrom()).toEqual([400, text.replace('path', 'source_paths[0]')]);
    writeFileSync(join(directory, 'source'), 'x');
    expect(await to.composeTo(join(directory, 'source'))).toEqual([400, text.replace('path', 'destination')]);
  });

  test('EIO: a file of the kernel that has nothing at its start', async () => {
    expect(await ways('/proc/self/mem').download()).toEqual([412, "EIO at path: '/proc/self/mem'"]);
  });

  test('EROFS: a read-only file system', async () => {
    const mount = mountTmpfs('1m', 'ro');
    const path = join(mount, 'new');
    const text = `file system is read-only at path: '${path}'`;
    expect(await ways(path).makeDir()).toEqual(['PermissionDenied', text]);
    expect(await ways(path).upload()).toEqual([403, text]);
    const directory = scratch();
    mkdirSync(join(directory, 'to'));
    writeFileSync(join(directory, 'source'), 'x');
    expect(await ways(path).composeTo(join(directory, 'source'))).toEqual([403, text]);
    const { filesystem } = connectTo(daemon.url);
    const moved = filesystem.move({ source: join(directory, 'source'), destination: path });
    await expect(moved).rejects.toMatchObject({ code: Code.PermissionDenied, rawMessage: text });
  });
});
