import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { PathHandle } from '../../../../../src/daemon/linux/files/place.ts';
import { readMounts } from '../../../../../src/daemon/linux/paths/mounts.ts';
import { type MountTools, SYSTEM_TOOLS, Volumes } from '../../../../../src/daemon/services/init/volumes.ts';
import { exchanger, linkOfStranger, STRANGER } from '../../../../support/attackers/exchanger.ts';
import { hang, mountFuse } from '../../../../support/machine/mounts.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { runStep } from '../../../../support/services/init-step.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

/** A mount(8) that bind-mounts a directory below `server`, and logs its arguments. */
const MOUNT = `#!/bin/sh
echo "$@" >> LOG
shift 5; target=$1 path=$2
[ -e "SERVER/down" ] && { echo "mount.nfs: Connection refused" >&2; exit 32; }
[ -e "SERVER/hangs" ] && sleep 1000
exec mount --bind "SERVER\${target#*:}" "$path"
`;

/** Volumes of a simulated server, whose exports each have a file of the same name. */
function setUp(tools: Partial<MountTools> = {}) {
  needs('mounts');
  const root = scratch();
  const [server, log, tool, guest] = ['server', 'log', 'mount', 'guest'].map((name) => join(root, name)) as [
    string,
    string,
    string,
    string,
  ];
  for (const name of ['a', 'b', 'b/inner']) {
    mkdirSync(join(server, name), { recursive: true });
    writeFileSync(join(server, name, 'name'), name);
  }
  mkdirSync(guest);
  writeFileSync(tool, MOUNT.replaceAll('SERVER', server).replaceAll('LOG', log));
  chmodSync(tool, 0o755);
  onTestFinished(() => {
    for (const path of mounted()) spawnSync('umount', ['--lazy', path]);
  });
  const mounted = () => readMounts().flatMap(({ path }) => (path.startsWith(guest) ? [path] : []));
  const stages = scratch();
  const volumes = new Volumes({ ...SYSTEM_TOOLS, mount: tool, helpers: [tool], ...tools }, stages, testLanes);
  return {
    ...{ server, guest, mounted, volumes, stages },
    calls: () => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []),
    shown: (path: string) => readFileSync(join(guest, path, 'name'), 'utf8'),
    mount: (targets: Record<string, string>, lifecycleID: string | null = 'life') =>
      volumes.mount(
        Object.entries(targets).map(([path, target]) => ({ nfsTarget: target, path: `${guest}/${path}` })),
        lifecycleID,
      ),
  };
}

test('mounts by NFS with the option soft, and makes the mount point', async () => {
  const { mount, calls, shown, stages } = setUp();
  await mount({ 'data/set/': '10.0.0.1:/a' });
  expect(shown('data/set')).toBe('a');
  expect(calls()).toEqual([
    expect.stringContaining(`-t nfs -o soft,proto=tcp,timeo=100,retrans=2,retry=0 -- 10.0.0.1:/a ${stages}/`),
  ]);
  expect(readdirSync(stages)).toEqual([]);
  expect(readMounts().filter(({ path }) => path.startsWith(stages))).toEqual([]);
});

describe('a mounted volume', () => {
  test('is kept within one life cycle', async () => {
    const { mount, calls, mounted } = setUp();
    await mount({ x: 'host:/a', y: 'host:/b' });
    await mount({ x: 'host:/a', y: 'host:/b' });
    expect([calls().length, mounted().length]).toEqual([2, 2]);
  });

  test.each([
    ['in another life', 'host:/a', 'next life', 'a'],
    ['from another target', 'host:/b', 'life', 'b'],
  ])('is mounted again %s', async (_, target, life, name) => {
    const { mount, calls, mounted, shown } = setUp();
    await mount({ x: 'host:/a' });
    await mount({ x: target }, life);
    expect([calls().length, mounted().length, shown('x')]).toEqual([2, 1, name]);
  });

  test('is mounted again when it was unmounted by others', async () => {
    const { mount, guest, shown } = setUp();
    await mount({ x: 'host:/a' });
    execFileSync('umount', [`${guest}/x`]);
    await mount({ x: 'host:/a' });
    expect(shown('x')).toBe('a');
  });

  test('is not taken for another of the same target, whose number it has got', async () => {
    const { mount, guest, mounted } = setUp();
    await mount({ y: 'host:/a' });
    await mount({ x: 'host:/a', y: 'host:/a' });
    execFileSync('umount', [`${guest}/y`]);
    await mount({ x: 'host:/a', y: 'host:/a' }, 'next life');
    expect(mounted().sort()).toEqual([`${guest}/x`, `${guest}/y`]);
  });

  test('is unmounted when it is not requested, also while in use', async () => {
    const { mount, mounted, guest } = setUp();
    await mount({ x: 'host:/a', y: 'host:/b' });
    const script = '{ cd "$1" && exec sleep 1000; } > /dev/null 2>&1 & echo $!';
    const user = execFileSync('sh', ['-c', script, 'sh', `${guest}/x`], { encoding: 'utf8' });
    onTestFinished(() => void process.kill(Number(user)));
    await mount({ y: 'host:/b' });
    expect(mounted()).toEqual([`${guest}/y`]);
    await mount({});
    expect(mounted()).toEqual([]);
  });

  test('is unmounted while its server does not answer, and calls wait for it', async () => {
    const [exported, behind] = mountFuse();
    writeFileSync(join(behind, 'file'), '');
    const { mount, mounted, server, guest } = setUp();
    symlinkSync(exported, join(server, 'silent'));
    await mount({ x: 'host:/silent' });
    const goOn = hang(exported);
    const call = () =>
      PathHandle.open(`${guest}/x/file`, false, testLanes).then((place) => place[Symbol.dispose]());
    const calls = Promise.allSettled(Array.from({ length: 4 }, call));
    await mount({});
    expect(mounted()).toEqual([]);
    goOn();
    await calls;
  });

  test('is unmounted with what others have mounted on it', async () => {
    const { mount, mounted, guest } = setUp();
    await mount({ x: 'host:/a' });
    for (let i = 0; i < 2; i++) execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', `${guest}/x`]);
    await mount({});
    expect(mounted()).toEqual([]);
  });

  test('is mounted after the one that contains it', async () => {
    const { mount, shown } = setUp();
    await mount({ 'x/inner': 'host:/a', x: 'host:/b' });
    expect([shown('x'), shown('x/inner')]).toEqual(['b', 'a']);
    await mount({ 'x/inner': 'host:/a', x: 'host:/b' }, 'next life');
    expect([shown('x'), shown('x/inner')]).toEqual(['b', 'a']);
  });

  test('behind a link is found again', async () => {
    const { mount, calls, guest, mounted } = setUp();
    mkdirSync(`${guest}/real`);
    symlinkSync('real', `${guest}/link`);
    await mount({ link: 'host:/a' });
    await mount({ link: 'host:/a' });
    expect(calls().length).toBe(1);
    await mount({ link: 'host:/a' }, 'next life');
    expect(mounted()).toEqual([`${guest}/real`]);
  });
});

describe('a failed mount can be repeated', () => {
  test('when the server refuses', async () => {
    const { mount, server, guest, shown } = setUp();
    writeFileSync(`${server}/down`, '');
    await expect(mount({ x: 'host:/a' })).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(
        `^cannot mount 'host:/a' at '${guest}/x': '.*/mount' failed \\(32\\): mount.nfs: Connection refused$`,
      ),
    });
    execFileSync('rm', [`${server}/down`]);
    await mount({ x: 'host:/a' });
    expect(shown('x')).toBe('a');
  });

  test('when the server does not answer', async () => {
    const { mount, server, guest } = setUp({ limitMs: 200 });
    writeFileSync(`${server}/hangs`, '');
    await expect(mount({ x: 'host:/a' })).rejects.toMatchObject({
      kind: 'deadline_exceeded',
      message: expect.stringContaining(`cannot mount 'host:/a' at '${guest}/x': '`),
    });
  });

  test('without mount(8)', async () => {
    const { mount } = setUp({ helpers: ['/nowhere/mount.nfs'] });
    await expect(mount({ x: 'host:/a' })).rejects.toMatchObject({
      kind: 'failed_precondition',
      message:
        "'mount.nfs' is not installed: install it (Debian: apt-get update && apt-get install nfs-common)",
    });
  });
});

/** A user's directory `home` with `dir/volume`, and `link`, which leads to the directory `etc` with `volume`. */
function setUpHome() {
  const each = setUp();
  const { guest } = each;
  chmodSync(join(guest, '..'), 0o755);
  for (const name of ['etc/volume', 'home/dir/volume']) mkdirSync(join(guest, name), { recursive: true });
  for (const name of ['home', 'home/dir']) chownSync(join(guest, name), STRANGER, STRANGER);
  linkOfStranger(`${guest}/etc`, `${guest}/home/link`);
  return { ...each, names: [`${guest}/home/dir`, `${guest}/home/link`] as const };
}

describe('in a directory that belongs to a user', () => {
  test('a link as the mount point is refused', async () => {
    const { mount, guest, mounted } = setUp();
    chmodSync(join(guest, '..'), 0o755);
    mkdirSync(`${guest}/etc`);
    linkOfStranger('etc', `${guest}/link`);
    for (const path of ['link', 'link/below'])
      await expect(mount({ [path]: 'host:/a' })).rejects.toMatchObject({ kind: 'permission_denied' });
    expect(mounted()).toEqual([]);
  });

  test('a mount point that is exchanged for a link leads nothing elsewhere', async () => {
    needs('python3');
    const { mount, guest, volumes, mounted, names } = setUpHome();
    await exchanger(...names);
    let done = 0;
    for (let round = 0; round < 100; round++) {
      await mount({ 'home/dir/volume': 'host:/a' }, String(round)).then(
        () => (done += 1),
        () => {},
      );
      expect(mounted().filter((path) => path.startsWith(`${guest}/etc`))).toEqual([]);
      // The path of the directory is exchanged, too.
      while (mounted().length > 0) for (const path of mounted()) spawnSync('umount', ['--lazy', path]);
    }
    expect(done).toBeGreaterThan(0);
    await volumes.mount([], null).catch(() => {});
  });
});

describe('a volume below a directory that its owner exchanges for a link', () => {
  /** `home/dir/volume` is mounted, and another file system at `etc/volume`. */
  async function setUpLink() {
    const each = setUpHome();
    const other = `${each.guest}/etc/volume`;
    execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', other]);
    await each.mount({ 'home/dir/volume': 'host:/a' });
    return { ...each, other };
  }

  test('is unmounted where it is now', async () => {
    const { mount, mounted, other, names, shown } = await setUpLink();
    const [directory, link] = names;
    renameSync(directory, `${directory}-away`);
    renameSync(link, directory);
    await mount({});
    expect(mounted()).toEqual([other]);
    await mount({ x: 'host:/b' });
    expect(shown('x')).toBe('b');
  });

  test('is unmounted, and nothing else is, while both are exchanged', async () => {
    needs('python3');
    const { mount, mounted, other, names } = await setUpLink();
    await exchanger(...names);
    for (let round = 0; round < 100; round++) {
      await mount({});
      expect(mounted()).toEqual([other]);
      // Refused when the link is met.
      for (let done = false; !done; ) {
        done = await mount({ 'home/dir/volume': 'host:/a' }).then(
          () => true,
          () => false,
        );
      }
    }
  });
});

test.each([
  ['-o', '/mnt/x', 'nfs_target'],
  ['-o:/x', '/mnt/x', 'nfs_target'],
  ['host', '/mnt/x', 'nfs_target'],
  ['host:relative', '/mnt/x', 'nfs_target'],
  ['a b:/x', '/mnt/x', 'nfs_target'],
  ['host:/x', 'relative', 'path of a volume'],
  ['host:/x', '/', 'path of a volume'],
  ['host:/x', '/mnt/..', 'path of a volume'],
])('%s at %s is refused before anything is mounted', async (nfsTarget, path, what) => {
  const { volumes, calls, guest } = setUp();
  const fine = { nfsTarget: '[fe80::1%eth0]:/a', path: `${guest}/x` };
  await expect(volumes.mount([fine, { nfsTarget, path }], null)).rejects.toMatchObject({
    kind: 'invalid_argument',
    message: expect.stringContaining(what),
  });
  expect(calls()).toEqual([]);
});

test('the step mounts the requested volumes, or none', async () => {
  const { volumes, guest, mounted } = setUp();
  const run = (body: object) => runStep('volumes', { volumes }, body);
  await run({ volumeMounts: [{ nfs_target: 'host:/a', path: `${guest}/x` }], lifecycleID: 'one' });
  await run({ lifecycleID: 'two' });
  expect(mounted()).toEqual([`${guest}/x`]);
  await run({ volumeMounts: [] });
  expect(mounted()).toEqual([]);
});
