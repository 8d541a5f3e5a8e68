import { spawn } from 'node:child_process';
import { closeSync, fstatSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import { RecordStore } from '../../../../../src/daemon/services/records/record-store.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

/** A store whose service manager does not answer; its queues are in this process. */
function newStore(): { store: RecordStore; failures: string[] } {
  const failures: string[] = [];
  const store = new RecordStore(join(scratch(), 'nobody'), { build: 'test' }, (reason) =>
    failures.push(reason),
  );
  return { store, failures };
}

/** What a recovery that is killed before its end leaves to the next one. */
function recoverTwice(store: RecordStore) {
  const first = newStore().store;
  first.recover(store.queues);
  return newStore().store.recover(first.queues);
}

test('the last state of each record is found, with its descriptors, also when a recovery was interrupted', () => {
  const { store } = newStore();
  const file = openSync('/dev/null', 'r');
  const inode = fstatSync(file).ino;
  const [changed, dropped, last] = [store.record('a'), store.record('b'), store.record('c')];
  changed.set({ state: 1 }, { one: file });
  dropped.set({ state: 2 }, { one: file });
  changed.set({ state: 3 }, { two: file, none: null });
  last.set({ state: 4 }, {}, true);
  dropped.drop();
  closeSync(file);
  const { records } = recoverTwice(store);
  expect(records.map(({ key, state, writer }) => [key, state, writer])).toEqual([
    ['c', { state: 4 }, { build: 'test' }],
    ['a', { state: 3 }, { build: 'test' }],
  ]);
  const { two = -1 } = records.find(({ key }) => key === 'a')?.descriptors ?? {};
  expect(fstatSync(two).ino).toBe(inode);
  closeSync(two);
});

test('a record of any length is found; what is forgotten is not', () => {
  const { store } = newStore();
  const text = 'x'.repeat(1_000_000);
  store.record('long').set({ text });
  store.record('short').set({ text: '' });
  const next = newStore().store;
  const { records, forget } = next.recover(store.queues);
  expect(records.find(({ key }) => key === 'long')?.state).toEqual({ text });
  forget('long');
  expect(
    newStore()
      .store.recover(next.queues)
      .records.map(({ key }) => key),
  ).toEqual(['short']);
});

test('long records with their descriptors are found after an interrupted recovery', () => {
  const { store } = newStore();
  const file = openSync('/dev/null', 'r');
  const inode = fstatSync(file).ino;
  const text = 'x'.repeat(20_000);
  for (const key of ['a', 'b', 'c']) store.record(key).set({ text }, { file });
  closeSync(file);
  const { records } = recoverTwice(store);
  expect(records.map(({ key, state }) => [key, state])).toEqual(
    ['a', 'b', 'c'].map((key) => [key, { text }]),
  );
  for (const { descriptors } of records) {
    expect(fstatSync(descriptors.file ?? -1).ino).toBe(inode);
    closeSync(descriptors.file ?? -1);
  }
});

test('the later one of two records is found, when a daemon was killed before it had forgotten the earlier one', () => {
  const { store } = newStore();
  store.record('a').set({ state: 1 });
  const { store: next } = newStore();
  next.recover(store.queues);
  next.record('a').set({ state: 2 });
  expect(recoverTwice(next).records.map(({ state }) => state)).toEqual([{ state: 2 }]);
});

test('records that do not change any more share a queue, also when some are long or dropped', () => {
  const { store } = newStore();
  const all = Array.from({ length: 1000 }, (_, index) => {
    const record = store.record(`${index}`);
    record.set({ index, text: '' });
    record.set({ index, text: 'ü'.repeat(index * 10) }, {}, true);
    return record;
  });
  for (const record of all.slice(0, 500)) record.drop();
  expect(store.queues.length).toBeLessThan(4);
  const found = recoverTwice(store).records.map(({ state }) => state);
  const expected = all
    .slice(500)
    .map((_, index) => ({ index: index + 500, text: 'ü'.repeat((index + 500) * 10) }));
  expect(found).toEqual(expected);
});

test('records that share a queue stay when another one is dropped', () => {
  const { store } = newStore();
  const all = Array.from({ length: 1000 }, (_, index) => {
    const record = store.record(`${index}`);
    record.set({ index });
    return record;
  });
  for (const record of all.filter((_, index) => index % 3 === 2)) record.drop();
  // The service manager keeps at most 300 descriptors.
  expect(store.queues.length).toBeLessThan(200);
  const found = newStore().store.recover(store.queues).records;
  expect(found.map(({ key }) => Number(key)).sort((a, b) => a - b)).toEqual(
    all.map((_, index) => index).filter((index) => index % 3 !== 2),
  );
});

test('that the service manager does not answer is told once', () => {
  const { store, failures } = newStore();
  for (let index = 0; index < 100; index += 1) store.record().set({ index });
  expect(failures).toEqual([expect.stringContaining('connect')]);
  expect(store.queues.length).toBe(100);
});

test('without a service manager nothing is kept', () => {
  const store = new RecordStore(null, {}, () => {});
  store.record().set({ state: 1 });
  expect([store.isActive, store.queues]).toEqual([false, []]);
});

test('no record is lost when the socket of the service manager is full', async () => {
  const socket = join(scratch(), 'manager');
  const manager = spawn('python3', ['-c', SLOW_MANAGER, socket, `${COUNT}`], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: manager.stdout })[Symbol.asyncIterator]();
  await lines.next();
  const failures: string[] = [];
  const store = new RecordStore(socket, { build: 'test' }, (reason) => failures.push(reason));
  const file = openSync('/dev/null', 'r');
  for (let count = 0; count < COUNT; count++) store.record().set({ count }, { file });
  closeSync(file);
  // Where the kernel takes so many at once, nothing waits.
  const { taken } = store;
  manager.stdin.end('read\n');
  await taken;
  expect((await lines.next()).value).toBe(`${COUNT} different names`);
  expect(failures).toEqual([]);
});

/** Each has a queue of its own. */
const COUNT = 24;
const SLOW_MANAGER = `
import socket, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(sys.argv[1])
print('ready', flush=True)
sys.stdin.readline()
names = {manager.recvmsg(4096, 64)[0] for _ in range(int(sys.argv[2]))}
print(len(names), 'different names', flush=True)
`;
