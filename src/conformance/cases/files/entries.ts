import { strict as assert } from 'node:assert';
import { Code } from '@connectrpc/connect';
import { FileType } from '../../../gen/filesystem/filesystem_pb.js';
import { given, section } from '../../suite/cases.ts';
import { CODECS, refused, type TestedDaemon } from '../../suite/daemon.ts';

const asRoot = given('root');
const MINUTE_MS = 60_000;

/** Makes directories and files, with the names as contents. */
async function plant(daemon: TestedDaemon, ...names: readonly string[]): Promise<void> {
  for (const name of names) {
    if (name.endsWith('/')) await daemon.makeDir(name.slice(0, -1));
    else await daemon.upload(daemon.at(name), name);
  }
}

/** Entries by their paths below the directory of the case. */
async function listed(daemon: TestedDaemon, depth: number, path = daemon.directory): Promise<string[]> {
  const { entries } = await daemon.filesystem.listDir({ path, depth });
  for (const entry of entries) assert(entry.path.startsWith(`${path}/`), `${entry.path} is below ${path}`);
  return entries.map((entry) => entry.path.slice(path.length + 1));
}

async function permissionsAfter(daemon: TestedDaemon, script: string): Promise<string> {
  await daemon.makeDir();
  await daemon.shell(`cd '${daemon.directory}' && ${script}`);
  return (await daemon.stat(daemon.at('it'))).permissions;
}

async function lookUps(daemon: TestedDaemon): Promise<void> {
  const path = daemon.at('file.txt');
  const begun = Date.now();
  await daemon.upload(path, '12345');
  for (const codec of CODECS) {
    const { entry } = await daemon.clients(codec).filesystem.stat({ path });
    assert(entry);
    const { name, type, size, mode, permissions, owner, symlinkTarget, modifiedTime } = entry;
    assert.deepEqual([name, type, entry.path, size], ['file.txt', FileType.FILE, path, 5n]);
    assert.deepEqual([mode, permissions, owner], [0o644, '-rw-r--r--', daemon.guest.user.name]);
    assert.equal(symlinkTarget, undefined);
    // Clocks may differ a little, and those of emulated guests more.
    assert(Math.abs(Number(modifiedTime?.seconds) * 1000 - begun) < 60 * MINUTE_MS, 'modified now');
  }
}

export const ENTRIES = section('4', 'Entries', {
  'Stat: a file, in both codecs': lookUps,
  'Stat: a directory': async (daemon) => {
    const { name, type, permissions } = await daemon.stat(await daemon.makeDir('d'));
    assert.deepEqual([name, type, permissions], ['d', FileType.DIRECTORY, 'drwxr-xr-x']);
  },
  'Stat: times have nanoseconds': async (daemon) => {
    await daemon.makeDir();
    await daemon.shell(`cd '${daemon.directory}' && touch -d '2001-02-03T04:05:06.123456789Z' it`);
    const { modifiedTime } = await daemon.stat(daemon.at('it'));
    assert.deepEqual([modifiedTime?.seconds, modifiedTime?.nanos], [981_173_106n, 123_456_789]);
  },
  'Stat: a link has its own name and size, and type and mode of its target': async (daemon) => {
    await plant(daemon, 'd/target');
    await daemon.shell(`cd '${daemon.directory}' && ln -s d/target first && ln -s first link`);
    const entry = await daemon.stat(daemon.at('link'));
    assert.deepEqual([entry.name, entry.path, entry.size], ['link', daemon.at('link'), 5n]);
    assert.deepEqual([entry.type, entry.mode, entry.permissions], [FileType.FILE, 0o644, 'Lrwxrwxrwx']);
    assert.equal(entry.symlinkTarget, daemon.at('d', 'target'));
  },
  'Stat: a link to a directory is of type DIRECTORY': async (daemon) => {
    await plant(daemon, 'd/');
    await daemon.shell(`cd '${daemon.directory}' && ln -s d link`);
    assert.equal((await daemon.stat(daemon.at('link'))).type, FileType.DIRECTORY);
  },
  'Stat: a dangling link and a cycle are UNSPECIFIED, with mode 0 and their own path': async (daemon) => {
    await daemon.makeDir();
    await daemon.shell(`cd '${daemon.directory}' && ln -s none dangling && ln -s cycle cycle`);
    for (const name of ['dangling', 'cycle']) {
      const { type, mode, symlinkTarget } = await daemon.stat(daemon.at(name));
      assert.deepEqual([type, mode, symlinkTarget], [FileType.UNSPECIFIED, 0, daemon.at(name)]);
    }
  },
  'Stat: permissions of a sticky directory': async (daemon) =>
    assert.equal(await permissionsAfter(daemon, 'mkdir it && chmod 1777 it'), 'dtrwxrwxrwx'),
  'Stat: permissions of set-id files': async (daemon) => {
    assert.equal(await permissionsAfter(daemon, 'touch it && chmod 4755 it'), 'urwxr-xr-x');
    assert.equal(await permissionsAfter(daemon, 'chmod 2755 it'), 'grwxr-xr-x');
  },
  'Stat: permissions of a fifo': async (daemon) =>
    assert.equal(await permissionsAfter(daemon, 'mkfifo -m 600 it'), 'prw-------'),
  'Stat: permissions of a character device': async (daemon) => {
    assert.match((await daemon.stat('/dev/null')).permissions, /^Dcrw/);
  },
  'Stat: the mode is the nine permission bits': async (daemon) => {
    await plant(daemon, 'it');
    await daemon.shell(`chmod 4751 '${daemon.at('it')}'`);
    assert.equal((await daemon.stat(daemon.at('it'))).mode, 0o751);
  },
  'Stat: an owner without a name is a number': asRoot(async (daemon) => {
    await plant(daemon, 'it');
    await daemon.shell(`chown 54321:54322 '${daemon.at('it')}'`);
    const { owner, group } = await daemon.stat(daemon.at('it'));
    assert.deepEqual([owner, group], ['54321', '54322']);
  }),
  'Stat: nothing there is not_found': async (daemon) => {
    await refused(daemon.stat(daemon.at('none')), Code.NotFound);
  },
  'MakeDir makes parents and tells the entry': async (daemon) => {
    for (const codec of CODECS) {
      const path = daemon.at(codec, 'a', 'b');
      const { entry } = await daemon.clients(codec).filesystem.makeDir({ path });
      assert.deepEqual([entry?.path, entry?.type], [path, FileType.DIRECTORY]);
    }
    assert.equal((await daemon.stat(daemon.at('JSON', 'a'))).type, FileType.DIRECTORY);
  },
  'MakeDir: a directory there is already_exists, a file invalid_argument': async (daemon) => {
    await plant(daemon, 'file', 'd/');
    await refused(daemon.filesystem.makeDir({ path: daemon.at('d') }), Code.AlreadyExists);
    await refused(daemon.filesystem.makeDir({ path: daemon.at('file') }), Code.InvalidArgument);
  },
  'Move renames, and makes the parents of the destination': async (daemon) => {
    for (const codec of CODECS) {
      await plant(daemon, 'old');
      const [source, destination] = [daemon.at('old'), daemon.at(codec, 'b', 'new')];
      const { entry } = await daemon.clients(codec).filesystem.move({ source, destination });
      assert.deepEqual([entry?.path, entry?.name], [destination, 'new']);
      assert.equal(String(await daemon.download(destination)), 'old');
      await refused(daemon.stat(source), Code.NotFound);
    }
  },
  'Move: a directory goes with what is in it': async (daemon) => {
    await plant(daemon, 'd/e/file');
    await daemon.filesystem.move({ source: daemon.at('d'), destination: daemon.at('n') });
    assert.equal(String(await daemon.download(daemon.at('n', 'e', 'file'))), 'd/e/file');
  },
  'Move: no source is not_found, and makes nothing': async (daemon) => {
    await daemon.makeDir();
    const call = daemon.filesystem.move({ source: daemon.at('none'), destination: daemon.at('a', 'b') });
    await refused(call, Code.NotFound);
    assert.deepEqual(await daemon.names(), []);
  },
  'ListDir: depth 0 is 1; by name, parents before children': async (daemon) => {
    await plant(daemon, 'b/2/x', 'b/1', 'c', 'a/', 'B');
    for (const depth of [0, 1]) assert.deepEqual(await listed(daemon, depth), ['B', 'a', 'b', 'c']);
    assert.deepEqual(await listed(daemon, 2), ['B', 'a', 'b', 'b/1', 'b/2', 'c']);
    assert.deepEqual(await listed(daemon, 9), ['B', 'a', 'b', 'b/1', 'b/2', 'b/2/x', 'c']);
  },
  'ListDir: the same in binary, with whole entries': async (daemon) => {
    await plant(daemon, 'file', 'd/');
    const { entries } = await daemon.clients('binary').filesystem.listDir({ path: daemon.directory });
    const brief = entries.map(({ name, type, size }) => [name, type, name === 'file' ? size : null]);
    assert.deepEqual(brief, [
      ['d', FileType.DIRECTORY, null],
      ['file', FileType.FILE, 4n],
    ]);
  },
  'ListDir: links below are not followed': async (daemon) => {
    await plant(daemon, 'd/file');
    await daemon.shell(`cd '${daemon.directory}' && ln -s d link`);
    assert.deepEqual(await listed(daemon, 3), ['d', 'd/file', 'link']);
  },
  'ListDir: the directory may be a link, and paths start with what was asked for': async (daemon) => {
    await plant(daemon, 'd/file');
    await daemon.shell(`cd '${daemon.directory}' && ln -s d link`);
    assert.deepEqual(await listed(daemon, 1, daemon.at('link')), ['file']);
  },
  'ListDir: many entries': async (daemon) => {
    await daemon.makeDir();
    await daemon.shell(
      `cd '${daemon.directory}' && i=0; while [ $i -lt 1500 ]; do : >f$((10000 + i)); i=$((i + 1)); done`,
    );
    const names = await daemon.names();
    assert.equal(names.length, 1500);
    assert.deepEqual(names, names.toSorted());
  },
  'ListDir: not_found, not a directory, a cycle of links': async (daemon) => {
    await plant(daemon, 'file');
    await daemon.shell(`cd '${daemon.directory}' && ln -s cycle cycle`);
    const list = (name: string) => daemon.filesystem.listDir({ path: daemon.at(name) });
    await refused(list('none'), Code.NotFound);
    await refused(list('file'), Code.InvalidArgument);
    await refused(list('cycle'), Code.FailedPrecondition);
  },
  'Remove is recursive, and a missing path is success': async (daemon) => {
    for (const codec of CODECS) {
      await plant(daemon, 'd/e/file', 'd/file', 'stays');
      const { filesystem } = daemon.clients(codec);
      for (let again = 0; again < 2; again += 1) await filesystem.remove({ path: daemon.at('d') });
      assert.deepEqual(await daemon.names(), ['stays']);
    }
  },
  'Remove: a link goes, and its target stays': async (daemon) => {
    await plant(daemon, 'd/file');
    await daemon.shell(`cd '${daemon.directory}' && ln -s d link`);
    await daemon.filesystem.remove({ path: daemon.at('link') });
    assert.deepEqual(await listed(daemon, 2), ['d', 'd/file']);
  },
});
