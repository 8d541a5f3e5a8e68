import { expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { mountFuse } from '../../support/machine/mounts.ts';
import { childrenOf, listeningSockets } from '../../support/machine/proc.ts';
import { startDaemon } from '../../support/programs/daemon.ts';

// On SIGUSR1, Node opens its inspector on 127.0.0.1:9229, where any user of the guest could run code as the process.
const ROUNDS = 50;

test('SIGUSR1 to the daemon opens no inspector and ends nothing', async () => {
  await using daemon = await startDaemon();
  const before = listeningSockets(daemon.pid);
  expect(before).toHaveLength(1);
  for (let round = 0; round < ROUNDS; round++) {
    process.kill(daemon.pid, 'SIGUSR1');
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
    expect(listeningSockets(daemon.pid)).toEqual(before);
  }
});

test('SIGUSR1 to the process that watches a network mount opens no inspector', async () => {
  const [mounted] = mountFuse();
  await using daemon = await startDaemon();
  const { filesystem } = connectTo(daemon.url);
  await filesystem.createWatcher({ path: mounted, allowNetworkMounts: true });
  const [watcher = 0] = childrenOf(daemon.pid);
  for (let round = 0; round < ROUNDS; round++) {
    process.kill(watcher, 'SIGUSR1');
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
    expect(listeningSockets(watcher)).toEqual([]);
  }
});
