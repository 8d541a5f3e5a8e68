// Starts short-lived processes one after the other, each in a new cgroup below the given one.
import { rmdirSync } from 'node:fs';
import { PipePoller } from '../../../src/daemon/linux/processes/pipe-ends.ts';
import { spawnWithPipes } from '../../../src/daemon/linux/processes/spawn.ts';
import { ROOT } from '../machine/users.ts';

const poller = new PipePoller();

const [, , parent = '', starts = ''] = process.argv;
for (let count = 0; count < Number(starts); count++) {
  const cgroup = `${parent}/${count}`;
  const launch = {
    file: '/bin/true',
    args: ['true'],
    environment: {},
    cwd: '/',
    user: ROOT,
    cgroup,
    limitMs: 10_000,
  };
  const { process: started, pipes } = await spawnWithPipes(launch, false);
  const ends = [pipes.stdout, pipes.stderr].map((descriptor) => poller.read(descriptor, () => {}).closed);
  await Promise.all([started.exit, ...ends]);
  rmdirSync(cgroup);
}
