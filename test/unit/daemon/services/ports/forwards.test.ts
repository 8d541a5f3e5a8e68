import { expect, onTestFinished, test, vi } from 'vitest';
import { Forwards } from '../../../../../src/daemon/services/ports/forwards.ts';

const INTERVAL_MS = 700;

/** Forwards of an address that the test gives; nothing is listened on. */
function forwards(address: () => Promise<string | null>) {
  const state = { isPaused: false, looks: 0, forwards: null as unknown as Forwards };
  state.forwards = new Forwards({
    read: async () => {
      state.looks++;
      return new Map();
    },
    address,
    ownPort: () => 1,
    maxPorts: 2,
    isPaused: () => state.isPaused,
    onChange: () => {},
    onLatecomers: () => {},
    onFailure: () => {},
  });
  onTestFinished(() => state.forwards[Symbol.dispose]());
  return state;
}

test('nothing is looked at after a freeze that has begun while the address was read', async () => {
  const asked = Promise.withResolvers<void>();
  const address = Promise.withResolvers<string>();
  const state = forwards(() => {
    asked.resolve();
    return address.promise;
  });
  await asked.promise;
  state.isPaused = true;
  address.resolve('127.0.0.1');
  await new Promise(setImmediate);
  expect(state.looks).toBe(0);
  state.isPaused = false;
  await expect.poll(() => state.looks).toBe(1);
});

test('looks come at intervals, and none after the end', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const state = forwards(async () => '127.0.0.1');
  const looksAfter = async (ms: number) => {
    await vi.advanceTimersByTimeAsync(ms);
    return state.looks;
  };
  expect(await looksAfter(INTERVAL_MS)).toBe(1);
  expect(await looksAfter(INTERVAL_MS - 1)).toBe(1);
  expect(await looksAfter(1)).toBe(2);
  state.forwards[Symbol.dispose]();
  expect(await looksAfter(10 * INTERVAL_MS)).toBe(2);
});
