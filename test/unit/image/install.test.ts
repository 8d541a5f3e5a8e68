import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';

const INSTALL = fileURLToPath(new URL('../../../systemd/image/install.sh', import.meta.url));
const install = (...args: readonly string[]) => spawnSync('sh', [INSTALL, ...args], { encoding: 'utf8' });

function put(root: string, file: string, text = ''): void {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), text);
}

/** What looks like a built daemon, with this text as its program. */
function built(program = 'one'): string {
  const dist = scratch();
  put(dist, 'bin/envd', program);
  chmodSync(join(dist, 'bin/envd'), 0o755);
  put(dist, 'systemd/envd.service', '[Unit]\n');
  put(dist, 'share/man/man1/envd.1');
  put(dist, 'share/fish/vendor_completions.d/envd.fish');
  return dist;
}

/** A root file system in which the file that tells its init is the only one. */
function rootWith(init: string): string {
  const root = scratch();
  if (init !== '') put(root, init);
  return root;
}

const filesIn = (root: string) =>
  globSync('**', { cwd: root }).filter(
    (file) => !statSync(join(root, file), { throwIfNoEntry: false })?.isDirectory(),
  );
const read = (root: string, file: string) => readFileSync(join(root, file), 'utf8');

test.each([
  [[], 'wanted DIST and ROOT, found 0 arguments'],
  [['dist'], 'wanted DIST and ROOT, found 1 arguments'],
  [['dist', ''], 'ROOT is empty'],
  [
    ['--init=upstart', 'dist', '/'],
    "wanted --init=systemd, --init=openrc or --init=none, found '--init=upstart'",
  ],
])('install.sh %j explains its arguments', (args, message) => {
  const { status, stderr } = install(...args);
  expect(status).toBe(2);
  expect(stderr).toContain(
    `install.sh: ${message}\nusage: sh install.sh [--init=INIT] DIST ROOT\n  DIST  the built daemon`,
  );
});

test('it refuses a directory that is no built daemon, and a root that is none', () => {
  const root = rootWith('');
  expect(install(root, root)).toMatchObject({
    status: 1,
    stderr: expect.stringContaining('it has no bin/envd'),
  });
  const missing = install(built(), join(root, 'missing'));
  expect(missing).toMatchObject({ status: 1, stderr: expect.stringContaining('there is no directory') });
  expect(filesIn(root)).toEqual([]);
});

test('in a root with systemd it enables the unit, and links the program, its manual page and its completion', () => {
  const root = rootWith('usr/lib/systemd/systemd');
  expect(install(built(), root)).toMatchObject({ status: 0, stderr: '' });
  expect(read(root, 'opt/envd/bin/envd')).toBe('one');
  expect(readlinkSync(join(root, 'etc/systemd/system/basic.target.wants/envd.service'))).toBe(
    '/etc/systemd/system/envd.service',
  );
  expect(readlinkSync(join(root, 'usr/local/bin/envd'))).toBe('/opt/envd/bin/envd');
  for (const file of ['man/man1/envd.1', 'fish/vendor_completions.d/envd.fish'])
    expect(readlinkSync(join(root, 'usr/local/share', file))).toBe(`/opt/envd/share/${file}`);
  expect(existsSync(join(root, 'etc/init.d'))).toBe(false);
});

test('in a root with OpenRC it adds a service to the default run level', () => {
  const root = rootWith('sbin/openrc');
  expect(install(built(), root).status).toBe(0);
  expect(statSync(join(root, 'etc/init.d/envd')).mode & 0o777).toBe(0o755);
  expect(readlinkSync(join(root, 'etc/runlevels/default/envd'))).toBe('/etc/init.d/envd');
  expect(existsSync(join(root, 'etc/systemd'))).toBe(false);
});

test('elsewhere it adds no service, and says what to start', () => {
  const root = rootWith('');
  expect(install(built(), root).stdout).toContain('start /opt/envd/bin/envd-supervise from your init');
  expect(existsSync(join(root, 'etc/systemd')) || existsSync(join(root, 'etc/init.d'))).toBe(false);
});

test('it replaces an earlier version, of which nothing is left', () => {
  const root = rootWith('');
  const [one, two] = [built(), built('two')];
  put(one, 'lib/only-in-one');
  for (const dist of [one, two]) expect(install(dist, root).status).toBe(0);
  expect(read(root, 'opt/envd/bin/envd')).toBe('two');
  expect(filesIn(join(root, 'opt')).filter((file) => /only-in-one|envd\.(new|old)/.test(file))).toEqual([]);
});

test('a failure changes nothing', () => {
  const root = rootWith('usr/lib/systemd/systemd');
  expect(install(built(), root).status).toBe(0);
  execFileSync('rm', ['-r', join(root, 'etc/systemd/journald.conf.d')]);
  // A file is where a directory is wanted, after other files were copied.
  put(root, 'etc/systemd/journald.conf.d');
  const before = filesIn(root);
  expect(install(built('two'), root)).toMatchObject({
    status: 1,
    stderr: expect.stringContaining('install.sh: nothing was installed'),
  });
  expect(filesIn(root)).toEqual(before);
  expect(read(root, 'opt/envd/bin/envd')).toBe('one');
});

test('a full disk changes nothing', () => {
  needs('mounts');
  const root = scratch();
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', root]);
  onTestFinished(() => void execFileSync('umount', [root]));
  expect(install(built(), root).status).toBe(0);
  const before = filesIn(root);
  const large = built('two');
  put(large, 'lib/envd', 'x'.repeat(2 << 20));
  expect(install(large, root)).toMatchObject({
    status: 1,
    stderr: expect.stringContaining('nothing was installed'),
  });
  expect(filesIn(root)).toEqual(before);
  expect(read(root, 'opt/envd/bin/envd')).toBe('one');
});
