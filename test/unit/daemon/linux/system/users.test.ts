import { execFileSync } from 'node:child_process';
import { renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { UserDatabase } from '../../../../../src/daemon/linux/system/users.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { ADA, GROUP, PASSWD, testUsers } from '../../../../support/machine/users.ts';

describe('lookup', () => {
  test('returns the user with all groups, the primary one first', () => {
    expect(testUsers(scratch()).lookup('ada')).toEqual(ADA);
  });

  test('agrees with id(1) on this machine', () => {
    const user = new UserDatabase().lookup('root');
    const groups = execFileSync('id', ['-G', 'root'], { encoding: 'utf8' }).trim().split(' ').map(Number);
    expect(user.uid).toBe(0);
    expect(new Set(user.groups)).toEqual(new Set(groups));
    expect(user.groups[0]).toBe(groups[0]);
  });

  test('refuses an unknown user', () => {
    const users = testUsers(scratch());
    expect(() => users.lookup('bob')).toThrow(
      expect.objectContaining({ kind: 'unauthenticated', message: "invalid username: 'bob'" }),
    );
    // Names of members that every object has.
    expect(() => users.lookup('constructor')).toThrow(/invalid username/);
    expect(() => users.lookup('')).toThrow(/invalid username/);
  });

  test('knows root without an entry, as in a guest without passwd(5)', () => {
    const directory = scratch();
    const users = new UserDatabase(join(directory, 'passwd'), join(directory, 'group'));
    const root = { name: 'root', uid: 0, gid: 0, groups: [0], home: '/', shell: '/bin/sh' };
    expect(users.lookup('root')).toEqual(root);
    writeFileSync(join(directory, 'passwd'), 'root:x:0:5::/home/root:/bin/ash\n');
    expect(users.lookup('root')).toMatchObject({ gid: 5, home: '/home/root', shell: '/bin/ash' });
  });

  test('takes the first entry of a name and skips malformed ones', () => {
    const directory = scratch();
    const users = testUsers(directory);
    writeFileSync(
      join(directory, 'passwd'),
      [
        '# a comment',
        '',
        '+nis::::::',
        'short:x:1',
        'minus:x:-1:0::/:',
        'nobody-at-all:x:4294967295:0::/:/bin/sh',
        'eve:x:7:8::/home/eve:/bin/zsh',
        'eve:x:9:9::/elsewhere:/bin/sh',
        'bare:x:10:10::',
      ].join('\n'),
    );
    expect(users.lookup('eve')).toMatchObject({ uid: 7, gid: 8, home: '/home/eve' });
    expect(users.lookup('bare')).toMatchObject({ home: '/', shell: '/bin/sh' });
    for (const name of ['short', 'minus', 'nobody-at-all', '+nis', '# a comment']) {
      expect(() => users.lookup(name), name).toThrow(/invalid username/);
    }
  });

  test('returns a group once, also when it lists its primary members', () => {
    const directory = scratch();
    const users = testUsers(directory);
    writeFileSync(join(directory, 'group'), 'pioneers:x:2002:ada\nalso:x:2003:ada\nagain:x:2003:ada\n');
    expect(users.lookup('ada').groups).toEqual([2002, 2003]);
  });
});

describe('names', () => {
  test('returns names, or the number as text when there is none', () => {
    const names = testUsers(scratch()).names();
    expect(names.userName(2001)).toBe('ada');
    expect(names.userName(4711)).toBe('4711');
    expect(names.groupName(2003)).toBe('analysts');
    expect(names.groupName(4711)).toBe('4711');
  });

  test('returns the first name of a number', () => {
    const directory = scratch();
    const users = testUsers(directory);
    writeFileSync(join(directory, 'passwd'), 'one:x:5:5::/:\ntwo:x:5:5::/:\n');
    expect(users.names().userName(5)).toBe('one');
  });
});

describe('changes of the files', () => {
  const bob = 'bob:x:2010:2010::/home/bob:/bin/sh\n';

  test('by appending or replacing are seen by the next call', () => {
    const directory = scratch();
    const users = testUsers(directory);
    const passwd = join(directory, 'passwd');
    expect(() => users.lookup('bob')).toThrow();
    writeFileSync(passwd, PASSWD + bob);
    expect(users.lookup('bob').uid).toBe(2010);
    // As useradd replaces it: by renaming another file.
    writeFileSync(`${passwd}+`, PASSWD);
    renameSync(`${passwd}+`, passwd);
    expect(() => users.lookup('bob')).toThrow();
    writeFileSync(join(directory, 'group'), `${GROUP}late:x:3000:ada\n`);
    expect(users.lookup('ada').groups).toContain(3000);
  });

  test('are seen when size and modification time are the same', async () => {
    const directory = scratch();
    const users = testUsers(directory);
    const passwd = join(directory, 'passwd');
    users.lookup('ada');
    const { atime, mtime } = statSync(passwd);
    for (let uid = 2100; uid < 2200; uid++) {
      writeFileSync(passwd, PASSWD.replace('2001', String(uid)));
      utimesSync(passwd, atime, mtime);
      expect(users.lookup('ada').uid).toBe(uid);
      // On a busy machine the file may be old enough by now to be looked at once in a turn.
      await turn();
    }
  });

  test('are seen in the next turn of the event loop after a long time without changes', async () => {
    const directory = scratch();
    const users = testUsers(directory);
    // A file that is a second old is not read again before its status changes.
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 1000 });
    onTestFinished(() => void vi.useRealTimers());
    expect(users.lookup('ada').uid).toBe(2001);
    expect(users.lookup('ada').uid).toBe(2001);
    writeFileSync(join(directory, 'passwd'), PASSWD.replace('2001', '2011'));
    await turn();
    expect(users.lookup('ada').uid).toBe(2011);
    expect(users.names().userName(2011)).toBe('ada');
  });

  test('a fifo in their place does not block', () => {
    const directory = scratch();
    const users = testUsers(directory);
    rmSync(join(directory, 'passwd'));
    execFileSync('mkfifo', [join(directory, 'passwd')]);
    expect(() => users.lookup('ada')).toThrow(/invalid username/);
  });

  test('missing files mean that there are no users', () => {
    const directory = scratch();
    const users = testUsers(directory);
    users.lookup('ada');
    rmSync(join(directory, 'passwd'));
    rmSync(join(directory, 'group'));
    expect(() => users.lookup('ada')).toThrow(/invalid username/);
    expect(users.names().userName(2001)).toBe('2001');
    writeFileSync(join(directory, 'passwd'), PASSWD);
    expect(users.lookup('ada').groups).toEqual([2002]);
  });
});
