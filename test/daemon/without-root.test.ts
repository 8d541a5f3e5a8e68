import { spawnSync } from 'node:child_process';
import { chownSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { connectTo, transcribe } from '../support/clients.ts';
import { startDaemon } from '../support/daemon.ts';
import { scratch } from '../support/scratch.ts';

const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
const UID = 65_534;
/** An ordinary user who may read what root has cloned: wherever that is, the sources can be loaded. */
const AS_NOBODY = [
  'setpriv',
  `--reuid=${UID}`,
  `--regid=${UID}`,
  '--clear-groups',
  '--inh-caps=-all,+dac_read_search',
  '--ambient-caps=-all,+dac_read_search',
  process.execPath,
] as const;

test('a daemon without root says at its start what will not work, and that is so', async () => {
  const directory = scratch();
  chownSync(directory, UID, UID);
  await using daemon = await startDaemon({
    command: [...AS_NOBODY, path('src/daemon/main.ts')],
    args: ['--no-cgroups', `--runtime-directory=${directory}/run`],
  });
  const warning = daemon.log.find(({ msg }) => msg?.startsWith('not root: '));
  expect(warning).toMatchObject({
    level: 40,
    uid: UID,
    msg: expect.stringContaining(
      'no process can be started, files can be made and changed as this user alone',
    ),
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

test('one with root says nothing of the kind', async () => {
  await using daemon = await startDaemon();
  expect(daemon.log.filter(({ msg }) => msg?.startsWith('not root'))).toEqual([]);
});

test.each(['tour', 'platform'])('the %s says what it needs instead of beginning', (name) => {
  const { status, stdout, stderr } = spawnSync(
    AS_NOBODY[0],
    [...AS_NOBODY.slice(1), path(`test/demo/${name}.ts`)],
    {
      encoding: 'utf8',
    },
  );
  expect(stderr).toMatch(/^demo: it needs root.*: this is not root\n$/);
  expect([status, stdout]).toEqual([1, '']);
});
