import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { Outbox } from '../../../../../src/daemon/services/watch/outbox.ts';
import { PolledWatches } from '../../../../../src/daemon/services/watch/polled.ts';
import { Watcher } from '../../../../../src/daemon/services/watch/watcher.ts';
import { scratch } from '../../../../support/machine/scratch.ts';
import { testLanes } from '../../../../support/services/lanes.ts';

test('a call is told what has happened just before it', async () => {
  const directory = scratch();
  using watcher = new Watcher(testLanes);
  using polled = new PolledWatches(watcher);
  const id = await polled.create(directory, {
    recursive: false,
    allowNetworkMounts: false,
    includeEntry: false,
  });
  for (let round = 0; round < 50; round += 1) {
    writeFileSync(join(directory, `${round}`), '');
    const events = [...(await polled.takeUpToNow(id))].flat();
    expect(events.map(({ name }) => name)).toContain(`${round}`);
  }
  await expect(polled.takeUpToNow('none')).rejects.toMatchObject({ kind: 'not_found' });
});

test('watches that nobody removes are bounded, also those that are being started', async () => {
  const directory = scratch();
  using watcher = new Watcher(testLanes);
  using polled = new PolledWatches(watcher, 8);
  const create = (path = directory) =>
    polled.create(path, { recursive: false, allowNetworkMounts: false, includeEntry: false });
  const refusal = {
    kind: 'resource_exhausted',
    message: expect.stringMatching(/^too many watchers: 8 are open/),
  };
  const [first = ''] = await Promise.all(Array.from({ length: 7 }, () => create()));
  // One that cannot be started counts no more.
  for (let count = 0; count < 2; count += 1)
    await expect(create(join(directory, 'none'))).rejects.toMatchObject({ kind: 'not_found' });
  const last = create();
  await expect(create()).rejects.toMatchObject(refusal);
  await last;
  await expect(create()).rejects.toMatchObject(refusal);
  polled.remove(first);
  await create();
});

test('a state that is read takes no event, and hides no end', async () => {
  const [directory, other] = [scratch(), join(scratch(), 'gone')];
  mkdirSync(other);
  using watcher = new Watcher(testLanes);
  using polled = new PolledWatches(watcher);
  const options = { recursive: false, allowNetworkMounts: false, includeEntry: false };
  const [id, gone] = [await polled.create(directory, options), await polled.create(other, options)];
  for (let count = 0; count < 200; count++) writeFileSync(join(directory, `${count}`), '');
  rmdirSync(other);
  await watcher.settled();
  using take = vi.spyOn(Outbox.prototype, 'take');
  const states = polled.state;
  expect(states.map(({ events }) => events.length)).toEqual([200, 1]);
  expect(polled.state).toEqual(states);
  // What is still in its queue counts against the limit of all queues.
  expect(take).not.toHaveBeenCalled();
  expect([...polled.take(id)].flat()).toEqual(states[0]?.events);
  expect([...polled.take(gone)].flat()).toEqual(states[1]?.events);
  expect(polled.state.map(({ events }) => events)).toEqual([[], []]);
  expect(() => [...polled.take(gone)]).toThrow('its directory is gone');
});
