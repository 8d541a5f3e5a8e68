import { expect, test } from 'vitest';
import { NoDirectory, NotExecuted } from '../../../../../../src/daemon/linux/processes/spawn.ts';
import { Guest } from '../../../../../../src/daemon/services/guest/guest.ts';
import {
  type Plan,
  planAgain,
  planStart,
} from '../../../../../../src/daemon/services/process/lifecycle/start.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { ROOT, testUsers } from '../../../../../support/machine/users.ts';
import { testLanes } from '../../../../../support/services/lanes.ts';

const config = { command: '/bin/bash', args: ['-l', '-c', 'true'], environment: {}, cwd: null };
const request = { config, user: ROOT, tag: null, terminal: null, stdin: true, startId: null };
/** What is launched when each launch of these files fails so. */
async function launched(command: string, failing: Readonly<Record<string, Error>>): Promise<Plan> {
  const place = { guest: new Guest(testUsers(scratch())), path: '/bin', lanes: testLanes };
  const asked = { ...request, config: { ...config, command } };
  for (let plan = await planStart(asked, place); ; ) {
    const error = failing[plan.file] ?? failing[plan.cwd];
    if (!error) return plan;
    plan = await planAgain(asked, place, plan, error);
  }
}

const missing = new NotExecuted('not_found', 'cannot start: ENOENT');

test('in place of a missing /bin/bash, /bin/sh is started', async () => {
  const { file, args } = await launched('/bin/bash', { '/bin/bash': missing });
  expect({ file, args }).toEqual({ file: '/bin/sh', args: ['/bin/sh', '-l', '-c', 'true'] });
});

test('in place of a missing home, the start is made in /, with PWD', async () => {
  const failing = { '/root': new NoDirectory('invalid_argument', 'no home'), '/bin/bash': missing };
  const { file, cwd, environment } = await launched('/bin/bash', failing);
  expect([file, cwd, environment.PWD, environment.HOME]).toEqual(['/bin/sh', '/', '/', '/root']);
});

test('in place of another program, of a bash that is not executable, and of / nothing is started', async () => {
  await expect(launched('/none/zsh', { '/none/zsh': missing })).rejects.toBe(missing);
  const denied = new NotExecuted('invalid_argument', 'cannot start: EACCES');
  await expect(launched('/bin/bash', { '/bin/bash': denied })).rejects.toThrow('cannot start: EACCES');
  const none = new NoDirectory('invalid_argument', 'no directory');
  await expect(launched('/bin/sh', { '/root': none, '/': none })).rejects.toBe(none);
});
