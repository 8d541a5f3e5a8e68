import { expect, test } from 'vitest';
import { Forwards } from '../../../../../src/daemon/services/ports/forwards.ts';

test('nothing is looked at after a freeze that has begun while the address was read', async () => {
  const asked = Promise.withResolvers<void>();
  const address = Promise.withResolvers<string>();
  let paused = false;
  let looks = 0;
  using _ = new Forwards({
    read: async () => {
      looks++;
      return Buffer.alloc(0);
    },
    address: () => {
      asked.resolve();
      return address.promise;
    },
    ownPort: () => 1,
    maxPorts: 2,
    isPaused: () => paused,
    onChange: () => {},
    onFailure: () => {},
  });
  await asked.promise;
  paused = true;
  address.resolve('127.0.0.1');
  await new Promise(setImmediate);
  expect(looks).toBe(0);
  paused = false;
  await expect.poll(() => looks, { timeout: 5000 }).toBe(1);
});

test('two users who listen everywhere leave places to the third', async () => {
  const listeners: Buffer[] = [];
  const listen = (uid: number, count: number) => {
    for (let index = 0; index < count; index++) {
      const record = Buffer.from([0, 0, 2, 0, 127, 0, 0, 1, ...Buffer.alloc(16)]);
      record.writeUInt16BE(20_000 + listeners.length);
      record.writeUInt32LE(uid, 20);
      listeners.push(record);
    }
  };
  const opened: number[] = [];
  using forwards = new Forwards({
    read: async () => Buffer.concat(listeners),
    address: async () => '127.0.0.3',
    ownPort: () => 1,
    maxPorts: 16,
    isPaused: () => false,
    onChange: (change) => opened.push(...change.opened),
    onFailure: () => {},
  });
  listen(1, 40);
  await expect.poll(() => opened.length).toBe(8);
  listen(2, 40);
  await expect.poll(() => opened.length).toBe(12);
  listen(3, 1);
  await expect.poll(() => opened.at(-1)).toBe(20_080);
  expect(forwards.list()).toHaveLength(13);
});
