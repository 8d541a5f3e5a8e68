import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { get, openRequest, post, RAW, uploadHead, uploadRaw } from '../../support/clients/files-client.ts';
import { mountFuse } from '../../support/machine/mounts.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

test('a new file belongs to the user and has its metadata', async () => {
  const [mounted, behind] = mountFuse();
  const path = join(mounted, 'deep/new');
  const content = randomBytes(1_000_000);
  const headers = { ...RAW, 'x-metadata-key': 'value' };
  const response = await post(daemon, { path, username: 'daemon' }, headers, content);
  expect(await response.json()).toEqual([{ path, name: 'new', type: 'file', metadata: { key: 'value' } }]);
  expect(content.equals(readFileSync(join(behind, 'deep/new')))).toBe(true);
  expect(statSync(join(behind, 'deep/new'))).toMatchObject({ uid: 1, gid: 1 });
  expect(content.equals(await (await get(daemon, path)).bytes())).toBe(true);
});

test('an existing file is overwritten in place', async () => {
  const [mounted, behind] = mountFuse();
  writeFileSync(join(behind, 'old'), 'a long old content');
  const { ino } = statSync(join(behind, 'old'));
  expect((await uploadRaw(daemon, join(mounted, 'old'), 'new')).status).toBe(200);
  expect(readFileSync(join(behind, 'old'), 'utf8')).toBe('new');
  expect(statSync(join(behind, 'old')).ino).toBe(ino);
});

test('an interrupted new file is removed', async () => {
  const [mounted, behind] = mountFuse();
  const head = uploadHead(`path=${mounted}/cut`, { ...RAW, 'content-length': 4_000_000 });
  // Less than a MiB would be kept in memory.
  const socket = await openRequest(daemon, head, randomBytes(2_000_000));
  const exists = () => existsSync(join(behind, 'cut'));
  await expect.poll(exists).toBe(true);
  socket.destroy();
  await expect.poll(exists).toBe(false);
});

test('joining files leaves nothing but the result', async () => {
  const [mounted, behind] = mountFuse();
  mkdirSync(join(behind, 'parts'));
  for (const destination of ['new/joined', 'parts/c']) {
    writeFileSync(join(behind, 'parts/c'), 'old');
    for (const name of ['a', 'b']) writeFileSync(join(behind, 'parts', name), name);
    const response = await fetch(`${daemon.url}/files/compose`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        source_paths: ['a', 'b'].map((name) => join(mounted, 'parts', name)),
        destination: join(mounted, destination),
      }),
    });
    expect(response.status).toBe(200);
    expect(readFileSync(join(behind, destination), 'utf8')).toBe('ab');
  }
  expect(readdirSync(join(behind, 'parts'))).toEqual(['c']);
  expect(readdirSync(join(behind, 'new'))).toEqual(['joined']);
});
