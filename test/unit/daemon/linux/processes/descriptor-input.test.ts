import { closeSync, openSync } from 'node:fs';
import { expect, test } from 'vitest';
import { DescriptorInput } from '../../../../../src/daemon/linux/processes/descriptor-input.ts';

test('however fast it is read, a large input is written in several turns of the event loop', async () => {
  const sink = openSync('/dev/null', 'w');
  const input = new DescriptorInput(sink, false);
  const { promise, resolve } = Promise.withResolvers<void>();
  let isWritten = false;
  input.write(Buffer.alloc(3 * 1024 * 1024), () => {
    isWritten = true;
    resolve();
  });
  expect(input.takenBytes).toBe(1024 * 1024);
  await new Promise((turn) => setImmediate(turn));
  expect(isWritten).toBe(false);
  await promise;
  expect(input.takenBytes).toBe(0);
  input.destroy();
  closeSync(sink);
});
