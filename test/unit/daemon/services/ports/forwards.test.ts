import { expect, test } from 'vitest';
import { Forwards } from '../../../../../src/daemon/services/ports/forwards.ts';

test('nothing is looked at after a freeze that has begun while the address was read', async () => {
  const asked = Promise.withResolvers<void>();
  const address = Promise.withResolvers<string>();
  let paused = false;
  let looks = 0;
  using _ = new Forwards({
    ...{ steering: null, steeringObstacle: null },
    read: async () => {
      looks++;
      return new Set();
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
