import { expect, test } from 'vitest';
import { Resumes } from '../../../src/gateway/expiry/resumes.ts';
import { register } from '../../../src/gateway/leases/transitions.ts';
import { EmbeddedStore } from '../../../src/gateway/registry/embedded.ts';
import { type Change, Registry } from '../../../src/gateway/registry/registry.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { until } from '../../support/until.ts';

/** Makes no change before it is opened. */
class HeldRegistry extends Registry {
  readonly opened = Promise.withResolvers<void>();
  readonly changes: Promise<unknown>[] = [];

  override change(id: string, change: Change) {
    const made = this.opened.promise.then(() => super.change(id, change));
    this.changes.push(made);
    return made;
  }
}

const sandboxOf = (id: string, owner: string | null = null) => ({ id, owner });

async function paused(registry: Registry, id: string): Promise<void> {
  const registration = {
    ...{ id, address: '10.0.0.1', ip: '10.0.0.1', port: 1, accessToken: null, metadata: {}, owner: null },
    ...{ envdVersion: '0.6.4', onExpiry: 'pause' as const },
  };
  await registry.put(id, (_before, now) => ({ ...register(null, registration, 0, now), phase: 'paused' }));
}

test('a sandbox counts as being resumed until that is over, though a request left and another one came', async () => {
  await using store = await EmbeddedStore.open(`${scratch()}/registry.db`);
  const registry = new HeldRegistry(store);
  for (const id of ['one', 'two']) await paused(registry, id);
  const scheduler = { work: () => new Promise<void>(() => {}) };
  const limits = { resumeWait: 60, maxWaiting: 10, maxResumes: 1 };
  const resumes = new Resumes({ registry, scheduler, owner: 'a', isOn: true, ...limits });
  const [first, second] = [new AbortController(), new AbortController()];
  const left = resumes.run(sandboxOf('one'), first.signal);
  await until('it is about to be claimed', () => registry.changes.length);
  first.abort(new Error('left'));
  await expect(left).rejects.toThrow('left');

  const waits = resumes.run(sandboxOf('one'), second.signal);
  await registry.find('one');
  registry.opened.resolve();
  await Promise.all(registry.changes);
  await expect(resumes.run(sandboxOf('two'), second.signal)).rejects.toThrow(
    /too many sandboxes are being resumed \(--max-resumes\): 1/,
  );
  second.abort(new Error('over'));
  await expect(waits).rejects.toThrow('over');
});

test('of those that may wait and be resumed, a client leaves others as many as are its own', async () => {
  await using store = await EmbeddedStore.open(`${scratch()}/registry.db`);
  const registry = new Registry(store);
  const ids = ['a', 'b', 'c', 'd'];
  for (const id of ids) await paused(registry, id);
  const scheduler = { work: () => new Promise<void>(() => {}) };
  const limits = { resumeWait: 60, maxWaiting: 4, maxResumes: 10 };
  const resumes = new Resumes({ registry, scheduler, owner: 'a', isOn: true, ...limits });
  const stop = new AbortController();
  const run = (id: string, owner: string | null) => resumes.run(sandboxOf(id, owner), stop.signal);
  const waiting = [run('a', 'eve'), run('a', 'eve')];
  await expect(run('b', 'eve')).rejects.toThrow("2 for 'eve'");
  waiting.push(run('c', 'ada'));
  await expect(run('c', 'ada')).rejects.toThrow("1 for 'ada'");
  waiting.push(run('d', null));
  stop.abort(new Error('over'));
  await Promise.all(waiting.map((each) => expect(each).rejects.toThrow('over')));
});
