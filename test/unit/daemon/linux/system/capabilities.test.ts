import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { missingCapabilities } from '../../../../../src/daemon/linux/system/capabilities.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

const FIRST = '         0          0 4294967295\n';

/** A /proc whose process has these capabilities in a user namespace with this map. */
function proc(effective: string, map: string, groups = 'allow'): string {
  const directory = scratch();
  mkdirSync(join(directory, 'self'));
  writeFileSync(
    join(directory, 'self/status'),
    `Name:\tenvd\nCapPrm:\t0000000000000000\nCapEff:\t${effective}\n`,
  );
  writeFileSync(join(directory, 'self/uid_map'), map);
  writeFileSync(join(directory, 'self/setgroups'), `${groups}\n`);
  return directory;
}

test.each<readonly [string, () => string, readonly string[]]>([
  ['all capabilities', () => proc('000001ffffffffff', FIRST), []],
  // Source: the default capabilities of containers, as in the OCI runtime of Docker.
  ['those of a container', () => proc('00000000a80425fb', FIRST), ['CAP_SYS_ADMIN', 'CAP_SYS_TIME']],
  [
    'all, in a user namespace',
    () => proc('000001ffffffffff', '0 1000 1\n'),
    ['CAP_SYS_ADMIN', 'CAP_SYS_TIME'],
  ],
  [
    'all, in a user namespace without groups',
    () => proc('000001ffffffffff', '0 1000 1\n', 'deny'),
    ['CAP_SETGID', 'CAP_SYS_ADMIN', 'CAP_SYS_TIME'],
  ],
  ['nothing of /proc', scratch, []],
])('a process with %s lacks what it says', (_name, directory, missing) => {
  expect(missingCapabilities(directory())).toEqual(missing);
});

test('a process without any lacks all', () => {
  expect(missingCapabilities(proc('0000000000000000', FIRST))).toHaveLength(8);
});
