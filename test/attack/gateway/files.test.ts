import {
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startGateway } from '../../support/programs/gateway.ts';
import { startGuests } from '../../support/programs/guests.ts';
import { phase } from '../../support/servers/hook.ts';

const modeOf = (path: string) => statSync(path).mode & 0o7777;

/** The files of a gateway, and the mode of each in octal. */
function modesIn(directory: string): Record<string, string> {
  const names = globSync('{registry.db*,hooks,hooks/**}', { cwd: directory });
  return Object.fromEntries(names.map((name) => [name, modeOf(join(directory, name)).toString(8)]));
}

function expectPrivate(directory: string): void {
  const modes = modesIn(directory);
  expect(Object.keys(modes)).toEqual(expect.arrayContaining(['registry.db', 'registry.db-wal', 'hooks']));
  const wanted = Object.keys(modes).map((name) => [
    name,
    statSync(join(directory, name)).isDirectory() ? '700' : '600',
  ]);
  expect(modes).toEqual(Object.fromEntries(wanted));
}

/** Starts a gateway, and stops it if it does start. */
const refusedStart = async (directory: string, ...args: readonly string[]) => {
  await using _gateway = await startGateway({ directory, args });
};

test('no other user of the host can read the files of the registry, nor those of hooks', async () => {
  const directory = scratch();
  const [umask, mode] = [join(directory, 'umask'), join(directory, 'mode')];
  await using guests = await startGuests(1);
  await using gateway = await startGateway({
    directory,
    args: [`--hook=umask >'${umask}'; stat -c %a request.json >'${mode}'; cat`],
  });
  await gateway.register('one', guests.ports[0] ?? 0, { timeout: 0, envdAccessToken: 'secret' });
  await phase(gateway, 'one', 'paused');
  expectPrivate(directory);
  const names = Object.keys(modesIn(directory));
  for (const name of ['output', 'lock', 'started', 'outcome'])
    expect(names.some((each) => each.endsWith(`/${name}`))).toBe(true);
  // The request is removed after a success.
  expect(readFileSync(mode, 'utf8')).toBe('600\n');
  // The command runs with the gateway's own umask.
  expect(Number.parseInt(readFileSync(umask, 'utf8'), 8)).toBe(process.umask());
});

test('files that are there already, with wider modes, are restricted', async () => {
  const directory = scratch();
  const args = ['--hook=true'];
  const first = await startGateway({ directory, args });
  await first.register('one', 1, { envdAccessToken: 'secret' });
  await first.kill('SIGKILL');
  for (const name of ['registry.db', 'registry.db-wal']) chmodSync(join(directory, name), 0o666);
  writeFileSync(join(directory, 'registry.db-shm'), '', { mode: 0o644 });
  chmodSync(join(directory, 'hooks'), 0o777);
  await using second = await startGateway({ directory, args });
  expect((await second.call('GET /sandboxes/one')).body.envdAccessToken).toBe('secret');
  expectPrivate(directory);
});

test('a link in the place of a file is not followed', async () => {
  const directory = scratch();
  const other = join(directory, 'other');
  writeFileSync(other, '');
  chmodSync(other, 0o644);
  symlinkSync(other, join(directory, 'registry.db-journal'));
  await expect(refusedStart(directory)).rejects.toThrow('gateway exited with 2');
  expect(modeOf(other)).toBe(0o644);
});

test('a directory that all users share is not taken for hooks', async () => {
  const directory = scratch();
  mkdirSync(join(directory, 'hooks'));
  chmodSync(join(directory, 'hooks'), 0o1777);
  await expect(refusedStart(directory, '--hook=true')).rejects.toThrow('gateway exited with 2');
  expect(modeOf(join(directory, 'hooks'))).toBe(0o1777);
  expect(existsSync(join(directory, 'hooks', 'lock'))).toBe(false);
});
