import type { Logger } from 'pino';
import { expect, test } from 'vitest';
import { ExclusiveLock } from '../../../../../src/base/exclusion.ts';
import type { Snapshot } from '../../../../../src/daemon/services/handover/state.ts';
import { Upgrade } from '../../../../../src/daemon/services/handover/upgrade.ts';
import { WriteGate } from '../../../../../src/daemon/services/pause/write-gate.ts';

const SNAPSHOT: Snapshot = {
  guest: {
    accessToken: null,
    defaultUser: 'root',
    defaultWorkdir: null,
    variables: { platform: {}, own: {}, defaults: {} },
  },
  ...{ initTimestamp: null, volumes: [], listener: 0, watches: [], limits: { descriptors: 1024, core: -1 } },
  ...{ records: [], forwards: { address: null, forwards: [] }, cgroupRoot: undefined, extensions: [] },
  processes: { processes: [], drains: [], memory: null, leaves: { count: 0, released: [] }, starting: [] },
};

test('what is excluded stays excluded until a replacement has failed, and its reason is told', async () => {
  const told = Promise.withResolvers<string>();
  const lock = new ExclusiveLock();
  const starts = Promise.withResolvers<boolean>();
  let goesOn = false;
  const processes = {
    refuseStarts: () => starts.promise,
    settle: async () => {},
    handOver: () => {},
    goOn: () => {
      goesOn = true;
    },
  };
  const upgrade = new Upgrade(
    {
      ...{ version: '1', commands: { next: ['/bin/true'], own: ['/bin/true'] }, upgradeTimeout: 20 },
      environmentWith: () => ({}),
    },
    {
      ...{ app: { leave: async () => {} }, listener: 0, processes, gate: new WriteGate(), lock },
      ...{ watcher: new DisposableStack(), shutdown: new AbortController() },
      stopping: new AbortController().signal,
      snapshot: () => SNAPSHOT,
      logWritten: async () => {},
    },
    { error: ({ reason }: { reason: string }) => told.resolve(reason) } as Logger,
  );
  await upgrade.start();
  expect(lock.isHeld).toBe(true);
  starts.resolve(false);
  expect(await told.promise).toBe(
    'cannot upgrade: starts of processes did not complete within 15 s, try again',
  );
  expect(goesOn).toBe(true);
  await expect.poll(() => lock.isHeld).toBe(false);
});
