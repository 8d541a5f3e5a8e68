import { strict as assert } from 'node:assert';
import { Code } from '@connectrpc/connect';
import { given, section } from '../../suite/cases.ts';
import { as, refused, refusedRest, type TestedDaemon } from '../../suite/daemon.ts';
import { sh } from '../../suite/running.ts';

const withUser = given('another user');

/** A name in the user's home that is removed at the end of the case. */
function inHome(daemon: TestedDaemon): string {
  const name = daemon.directory.slice(1).replaceAll('/', '-');
  daemon.atEnd(() => daemon.filesystem.remove({ path: name }));
  return name;
}

export const PATHS = section('3', 'Paths', {
  'an empty path is the working directory of a process that names none': async (daemon) => {
    const { ended } = await daemon.start({ process: { cmd: 'pwd' }, stdin: false });
    const { path, type } = await daemon.stat('');
    assert.equal(`${path}\n`, String((await ended).stdout));
    assert.equal(type, 2);
  },
  '~ is the home of the user': async (daemon) => {
    assert.equal((await daemon.stat('~')).path, daemon.guest.user.home);
  },
  '~/… and relative paths are below the home': async (daemon) => {
    const { home } = daemon.guest.user;
    const name = inHome(daemon);
    assert.equal((await daemon.upload(`~/${name}/file`, 'here')).path, `${home}/${name}/file`);
    assert.equal(String(await daemon.download(`${name}/file`)), 'here');
    assert.equal((await daemon.stat(`${name}/file`)).path, `${home}/${name}/file`);
  },
  'the home is that of the user of the call': withUser(async (daemon) => {
    const { name, home } = daemon.other;
    const call = daemon.filesystem.stat({ path: '~' }, { headers: as(name) });
    // It may be missing; then the error names it.
    const told = await call.then(
      ({ entry }) => entry?.path ?? '',
      (error: Error) => error.message,
    );
    assert(told.includes(home), told);
  }),
  'the home of another user cannot be named so': async (daemon) => {
    await refused(daemon.stat('~root/x'), Code.InvalidArgument);
    refusedRest(await daemon.rest('GET', '/files', { query: { path: '~root/x' } }), 400);
  },
  'a path is normalised': async (daemon) => {
    await daemon.upload(daemon.at('a', 'file'));
    const { path } = await daemon.stat(`${daemon.directory}//a/./b/../file`);
    assert.equal(path, daemon.at('a', 'file'));
  },
  'missing directories get mode 0755 and the user; those that are there keep theirs': withUser(
    async (daemon) => {
      const { name } = daemon.other;
      const before = await daemon.stat(await daemon.makeDir());
      await daemon.upload(daemon.at('a', 'b', 'file'), 'x', {}, { username: name });
      const group = await daemon.shell(`id -gn ${name}`);
      for (const path of [daemon.at('a'), daemon.at('a', 'b')]) {
        const made = await daemon.stat(path);
        assert.deepEqual([made.permissions, made.owner, made.group], ['drwxr-xr-x', name, group]);
      }
      const after = await daemon.stat(daemon.directory);
      assert.deepEqual([after.owner, after.mode], [before.owner, before.mode]);
    },
  ),
  'names that are not UTF-8 are told reversibly': async (daemon) => {
    const made = await daemon.start({
      process: sh(`mkdir -p '${daemon.directory}' && : >'${daemon.directory}/'$(printf 'caf\\351')`),
    });
    await made.ended;
    const path = `${daemon.directory}/caf\uefe9`;
    const { entries } = await daemon.filesystem.listDir({ path: daemon.directory });
    assert.deepEqual(
      entries.map((entry) => entry.path),
      [path],
    );
    await daemon.upload(path, 'content');
    assert.equal(String(await daemon.download(path)), 'content');
    await daemon.filesystem.remove({ path });
    assert.deepEqual(await daemon.names(), []);
  },
  'a path of more than 4,095 bytes is refused': async (daemon) => {
    const path = `/${'x'.repeat(4095)}`;
    await refused(daemon.stat(path), Code.InvalidArgument);
    refusedRest(await daemon.rest('GET', '/files', { query: { path } }), 400);
  },
  'a path with a NUL byte is refused': async (daemon) => {
    await refused(daemon.stat('/tmp/\0'), Code.InvalidArgument);
    refusedRest(await daemon.rest('GET', '/files', { query: { path: '/tmp/\0' } }), 400);
  },
});
