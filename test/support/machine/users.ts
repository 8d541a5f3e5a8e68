import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type User, UserDatabase } from '../../../src/daemon/linux/system/users.ts';
import type { EntrySource } from '../../../src/daemon/services/files/entries/entry.ts';
import { testLanes } from '../services/lanes.ts';

export const PASSWD = `root:x:0:0:root:/root:/bin/bash
ada:x:2001:2002:Ada:/home/ada:/bin/sh
`;
export const GROUP = `root:x:0:
pioneers:x:2002:
analysts:x:2003:bob,ada
`;

/** A database on files in `directory`, with root and the user `ada` (2001:2002). */
export function testUsers(directory: string): UserDatabase {
  writeFileSync(join(directory, 'passwd'), PASSWD);
  writeFileSync(join(directory, 'group'), GROUP);
  return new UserDatabase(join(directory, 'passwd'), join(directory, 'group'));
}

export const ADA: User = {
  name: 'ada',
  uid: 2001,
  gid: 2002,
  groups: [2002, 2003],
  home: '/home/ada',
  shell: '/bin/sh',
};

export const ROOT: User = { name: 'root', uid: 0, gid: 0, groups: [0], home: '/root', shell: '/bin/bash' };

/** The context of directory entries, with these users. */
export function testEntries(directory: string): EntrySource {
  return { users: testUsers(directory), lanes: testLanes, metadataPrefix: 'user.svc.' };
}
