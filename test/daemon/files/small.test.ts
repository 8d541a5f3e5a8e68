import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { uploadRaw } from '../../support/clients/files-client.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon } from '../../support/programs/daemon.ts';

test('small uploads hold nothing open when they are stored, also where that is not possible in one job', async () => {
  await using daemon = await startDaemon();
  const directory = scratch();
  const descriptors = () => readdirSync(`/proc/${daemon.pid}/fd`).length;
  const paths = ['new', 'new', 'made/by/it', '.', 'made/by'].map((name) => join(directory, name));
  // Connections stay open.
  const statuses = async () =>
    Array.fromAsync(paths, async (path) => (await uploadRaw(daemon, path, 'x')).status);
  expect(await statuses()).toEqual([200, 200, 200, 400, 400]);
  const before = descriptors();
  for (let round = 0; round < 20; round++) await statuses();
  expect(descriptors()).toBeLessThan(before + 5);
  expect(readdirSync(directory).sort()).toEqual(['made', 'new']);
});
