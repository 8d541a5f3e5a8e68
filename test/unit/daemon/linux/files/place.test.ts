import {
  chmodSync,
  constants,
  lchownSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { PathHandle } from '../../../../../src/daemon/linux/files/place.ts';
import { Lanes, NoAnswer } from '../../../../../src/daemon/linux/lanes/lanes.ts';
import { hang, mountFuse } from '../../../../support/machine/mounts.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ADA } from '../../../../support/machine/users.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

/** The path where the walk ends, including the missing part. */
async function ends(path: string, follow = true): Promise<string> {
  using place = await PathHandle.open(path, follow, testLanes);
  return join(await place.directoryPath(), place.isBelowMissing ? '(missing)' : '', place.name);
}

async function make(path: string): Promise<boolean> {
  using place = await PathHandle.open(path, false, testLanes);
  return await place.makeDirectory(ADA);
}

test('a name below a missing directory is not one of the directory above it', async () => {
  const directory = scratch();
  writeFileSync(join(directory, 'file'), '');
  using place = await PathHandle.open(join(directory, 'missing/file'), true, testLanes);
  await expect(place.openFile(0)).rejects.toMatchObject({ code: 'ENOENT' });
});

test('a file that is created when its creator has given up is removed', async () => {
  const [mounted, behind] = mountFuse();
  const lanes = new Lanes({ limitMs: 300, threads: 16 });
  using place = await PathHandle.open(join(mounted, 'file'), true, lanes);
  const goOn = hang(mounted);
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
  await expect(place.openFile(flags)).rejects.toThrow(NoAnswer);
  goOn();
  await expect.poll(() => lanes.isBusy).toBe(false);
  // The server keeps a file that is open under another name until the kernel tells it of the close, which nobody waits for.
  await expect.poll(() => readdirSync(behind)).toEqual([]);
});

describe('a walk', () => {
  test('resolves files, links, chains of links, and missing names', async () => {
    const directory = scratch();
    const at = (name: string) => join(directory, name);
    mkdirSync(at('real/sub'), { recursive: true });
    writeFileSync(at('real/file'), '');
    symlinkSync('real', at('alias'));
    symlinkSync('alias/file', at('chain'));
    symlinkSync('missing', at('dangling'));
    symlinkSync('dangling', at('dangling-chain'));
    symlinkSync('../new', at('real/sub/up'));
    symlinkSync('real/sub', at('deep'));
    symlinkSync('./real//sub/../sub/.', at('odd'));
    symlinkSync('real/sub/', at('slash'));
    symlinkSync('/', at('root'));
    symlinkSync(at('absolute-target'), at('absolute'));

    expect(await ends(at('real/file'))).toBe(at('real/file'));
    expect(await ends(at('chain'))).toBe(at('real/file'));
    expect(await ends(at('chain'), false)).toBe(at('chain'));
    expect(await ends(at('alias/file'), false)).toBe(at('real/file'));
    expect(await ends(at('dangling-chain'))).toBe(at('missing'));
    expect(await ends(at('deep/up'))).toBe(at('real/new'));
    expect(await ends(at('absolute'))).toBe(at('absolute-target'));
    expect(await ends(at('odd/x'))).toBe(at('real/sub/x'));
    expect(await ends(at('slash'))).toBe(at('real/sub'));
    expect(await ends(at('root'))).toBe('/');
    expect(await ends(at('root/proc'))).toBe('/proc');
    expect(await ends('/')).toBe('/');
    expect(await ends('/proc/self/root/dev/null')).toBe('/dev/null');
    expect(await ends(at('new/below'))).toBe(at('(missing)/below'));
    expect(await ends(at('dangling/a/b'))).toBe(at('(missing)/b'));
  });

  test('fails on a cycle of links, and on a file in place of a directory', async () => {
    const directory = scratch();
    symlinkSync('b', join(directory, 'a'));
    symlinkSync('a', join(directory, 'b'));
    await expect(ends(join(directory, 'a'))).rejects.toMatchObject({ code: 'ELOOP' });
    await expect(ends(join(directory, 'a/x'))).rejects.toMatchObject({ code: 'ELOOP' });
    writeFileSync(join(directory, 'file'), '');
    await expect(ends(join(directory, 'file/below'))).rejects.toMatchObject({ code: 'ENOTDIR' });
    symlinkSync('missing/../x', join(directory, 'up'));
    await expect(ends(join(directory, 'up'))).rejects.toMatchObject({ code: 'ENOENT' });
    symlinkSync(`${'x/'.repeat(2000)}y`, join(directory, 'long'));
    await expect(ends(join(directory, `long/${'z/'.repeat(100)}z`))).rejects.toMatchObject({
      code: 'ENAMETOOLONG',
    });
  });

  test('keeps the directory that it reached until it is repeated', async () => {
    const directory = scratch();
    mkdirSync(join(directory, 'a'));
    using place = await PathHandle.open(join(directory, 'a/file'), true, testLanes);
    rmSync(join(directory, 'a'), { recursive: true });
    mkdirSync(join(directory, 'a'));
    await expect(place.openFile(0o101)).rejects.toMatchObject({ code: 'ENOENT' });
    await place.renew();
    await using _file = await place.openFile(0o101);
    expect(readdirSync(join(directory, 'a'))).toEqual(['file']);
  });

  test('does not follow a link that has replaced the last name', async () => {
    const directory = scratch();
    using place = await PathHandle.open(join(directory, 'x'), true, testLanes);
    symlinkSync('/dev/null', join(directory, 'x'));
    await expect(place.openFile(1)).rejects.toMatchObject({ code: 'ELOOP' });
    expect((await place.status())?.isSymbolicLink()).toBe(true);
  });
});

describe('a link that a user has made', () => {
  const link = (target: string, path: string, owner = ADA.uid) => {
    symlinkSync(target, path);
    lchownSync(path, owner, owner);
  };

  test('is followed with the permissions of that user', async () => {
    needs('root');
    const directory = scratch();
    chmodSync(directory, 0o755);
    const at = (name: string) => join(directory, name);
    mkdirSync(at('closed'), { mode: 0o700 });
    mkdirSync(at('open'), { mode: 0o755 });
    link('closed', at('to-closed'));
    link('open', at('to-open'));
    await expect(ends(at('to-closed/x'))).rejects.toMatchObject({ code: 'EACCES' });
    using open = await PathHandle.open(at('to-open/x'), true, testLanes);
    expect(open.owner).toBe(ADA.uid);
    await expect(open.openFile(0o101)).rejects.toMatchObject({ code: 'EACCES' });
    await expect(open.assertMayChange()).rejects.toMatchObject({ code: 'EACCES' });
    await expect(open.makeDirectory(ADA)).rejects.toMatchObject({ code: 'EACCES' });
    expect(readdirSync(at('open'))).toEqual([]);
    using own = await PathHandle.open(at('open/x'), true, testLanes);
    expect(own.owner).toBeNull();
    await own.assertMayChange();
  });

  test('is followed with the groups of that user', async () => {
    needs('root');
    const directory = scratch();
    chmodSync(directory, 0o755);
    const at = (name: string) => join(directory, name);
    // A user of Debian's base-passwd with a group of the same name.
    const [, , uid, gid] = (/^mail:.*/m.exec(readFileSync('/etc/passwd', 'utf8'))?.[0] ?? '')
      .split(':')
      .map(Number);
    if (!uid || !gid) throw new Error('there is no user mail on this machine');
    for (const [name, group] of [
      ['his', gid],
      ['others', gid + 1],
    ] as const) {
      mkdirSync(at(name));
      lchownSync(at(name), 0, group);
      chmodSync(at(name), 0o770);
      link(name, at(`to-${name}`), uid);
    }
    expect(await ends(at('to-his/x'))).toBe(at('his/x'));
    await expect(ends(at('to-others/x'))).rejects.toMatchObject({ code: 'EACCES' });
  });

  test('does not lead on through a third user’s link, but through root’s', async () => {
    needs('root');
    const directory = scratch();
    chmodSync(directory, 0o755);
    const at = (name: string) => join(directory, name);
    link('of-bob', at('of-ada'));
    link('.', at('of-bob'), 2002);
    link('of-root', at('by-ada'));
    symlinkSync('.', at('of-root'));
    await expect(ends(at('of-ada/x'))).rejects.toMatchObject({ code: 'EACCES' });
    expect(await ends(at('of-bob/x'))).toBe(at('x'));
    expect(await ends(at('by-ada/x'))).toBe(at('x'));
  });

  test('does not allow to replace another user’s file in a sticky directory', async () => {
    needs('root');
    const directory = scratch();
    chmodSync(directory, 0o755);
    const at = (name: string) => join(directory, name);
    mkdirSync(at('sticky'));
    chmodSync(at('sticky'), 0o1777);
    writeFileSync(at('sticky/roots'), '');
    linkSync(at('sticky/roots'), at('sticky/other'));
    writeFileSync(at('sticky/hers'), '');
    lchownSync(at('sticky/hers'), ADA.uid, ADA.gid);
    link('sticky', at('to-sticky'));
    const check = async (name: string) => {
      using place = await PathHandle.open(at(`to-sticky/${name}`), false, testLanes);
      await place.assertMayChange();
    };
    await check('new');
    await check('hers');
    await expect(check('roots')).rejects.toMatchObject({ code: 'EPERM' });
  });
});

describe('makeDirectory', () => {
  test('makes missing directories, which belong to the user with mode 0755, and keeps existing ones', async () => {
    const root = scratch();
    mkdirSync(join(root, 'there'), { mode: 0o700 });
    expect(await make(join(root, 'there/a/b'))).toBe(true);
    for (const made of ['there/a', 'there/a/b']) {
      const { uid, gid, mode } = statSync(join(root, made));
      expect([uid, gid, mode & 0o7777]).toEqual([2001, 2002, 0o755]);
    }
    const { uid, mode } = statSync(join(root, 'there'));
    expect([uid, mode & 0o7777]).toEqual([0, 0o700]);
  });

  test('does not inherit the group and the set-group-ID bit', async () => {
    const root = scratch();
    lchownSync(root, 0, 4000);
    chmodSync(root, 0o2755);
    expect(await make(join(root, 'a/b'))).toBe(true);
    for (const made of ['a', 'a/b']) {
      const { gid, mode } = statSync(join(root, made));
      expect([gid, mode & 0o7777]).toEqual([2002, 0o755]);
    }
  });

  test('returns false for an existing directory', async () => {
    const root = scratch();
    symlinkSync(root, join(root, 'link'));
    expect(await make(root)).toBe(false);
    expect(await make('/')).toBe(false);
    expect(await make(join(root, 'link/below'))).toBe(true);
    expect(statSync(join(root, 'below')).uid).toBe(2001);
    await expect(make(join(root, 'link'))).rejects.toMatchObject({ code: 'ENOTDIR' });
  });

  test.each(['file', 'file/below', 'file/below/deep', 'dangling'])(
    'refuses a path through something else: %s',
    async (path) => {
      const root = scratch();
      writeFileSync(join(root, 'file'), '');
      symlinkSync(join(root, 'nowhere'), join(root, 'dangling'));
      await expect(make(join(root, path))).rejects.toMatchObject({ code: 'ENOTDIR' });
      expect(readdirSync(root).sort()).toEqual(['dangling', 'file']);
    },
  );

  test('fails on a file system that allows no directories', async () => {
    await expect(make('/proc/envd-test/below')).rejects.toMatchObject({ code: 'ENOENT' });
  });

  test('makes a directory once when many call it', async () => {
    const path = join(scratch(), 'a/b/c');
    const made = await Promise.all(Array.from({ length: 20 }, () => make(path)));
    expect(made.filter(Boolean)).toHaveLength(1);
    expect(statSync(path).isDirectory()).toBe(true);
  });

  test('works up to the longest path', async () => {
    const segment = 'd'.repeat(200);
    let path = scratch();
    while (path.length + 1 + segment.length < 4095) path = join(path, segment);
    expect(await make(path)).toBe(true);
    await expect(make(join(path, segment))).rejects.toMatchObject({ code: 'ENAMETOOLONG' });
  });
});
