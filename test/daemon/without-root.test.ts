import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { connectTo, transcribe } from '../support/clients.ts';
import { startDaemon } from '../support/daemon.ts';
import { needs } from '../support/needs.ts';
import { scratch } from '../support/scratch.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const NODE = relative(ROOT, process.execPath);
const UID = 65_534;

/**
 * The command of a program of this clone without any privilege of root, bound to a directory that everybody may read,
 * wherever the clone is.
 */
function asNobody(program: string): [string, ...string[]] {
  needs('mounts');
  const place = scratch();
  chmodSync(place, 0o755);
  const drop = `setpriv --reuid=${UID} --regid=${UID} --clear-groups --inh-caps=-all --bounding-set=-all`;
  const script = `mount --bind '${ROOT}' '${place}' && cd '${place}' && exec ${drop} "$@"`;
  return ['unshare', '--mount', 'sh', '-c', script, 'sh', `./${NODE}`, `./${program}`];
}

test('a daemon without root logs at its start what will not work, and that is what fails', async () => {
  const directory = scratch();
  chownSync(directory, UID, UID);
  await using daemon = await startDaemon({
    command: asNobody('src/daemon/main.ts'),
    args: ['--no-cgroups', `--runtime-directory=${directory}/run`],
  });
  const warning = daemon.log.find(({ msg }) => msg?.startsWith('not root: '));
  expect(warning).toMatchObject({
    level: 40,
    uid: UID,
    msg: expect.stringContaining('cannot start processes, write files as another user'),
  });
  const { process } = connectTo(daemon.url);
  await expect(transcribe(process.start({ process: { cmd: 'true' } }))).rejects.toThrow('EPERM');
  const upload = (username: string) =>
    fetch(`${daemon.url}/files?path=${directory}/of-${username}&username=${username}`, {
      method: 'POST',
      headers: { 'content-type': 'application/octet-stream' },
      body: 'x',
    });
  expect((await upload('nobody')).status).toBe(200);
  expect((await upload('root')).status).toBe(403);
});

test('a daemon with root logs no such warning', async () => {
  await using daemon = await startDaemon();
  expect(daemon.log.filter(({ msg }) => msg?.startsWith('not root'))).toEqual([]);
});

test.each(['tour', 'platform'])('the demo %s names what it needs instead of starting', (name) => {
  const [unshare, ...args] = asNobody(`test/demo/${name}.ts`);
  const { status, stdout, stderr } = spawnSync(unshare, args, { encoding: 'utf8' });
  expect(stderr).toMatch(/^demo: it needs root.*: this is not root\n$/);
  expect([status, stdout]).toEqual([1, '']);
});
