import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { Transfers } from '../../../../../src/base/tally.ts';
import { countUploads } from '../../../../../src/daemon/services/files/counted-uploads.ts';
import type { FileServices } from '../../../../../src/daemon/services/files/services.ts';
import type { UploadPart } from '../../../../../src/daemon/services/files/upload.ts';
import { CountedWatcher } from '../../../../../src/daemon/services/watch/counted-watcher.ts';
import { PolledWatches } from '../../../../../src/daemon/services/watch/polled.ts';
import { Watcher } from '../../../../../src/daemon/services/watch/watcher.ts';
import { testLanes } from '../../../../support/lanes.ts';
import { scratch } from '../../../../support/scratch.ts';
import { ADA } from '../../../../support/users.ts';

const options = { recursive: false, allowNetworkMounts: false };

test('open watches of both kinds are counted', async () => {
  const directory = scratch();
  using watcher = new CountedWatcher(testLanes);
  using polled = new PolledWatches(watcher);
  const first = await watcher.watch(directory, options);
  const second = await polled.create(directory, options);
  expect(watcher.open).toBe(2);
  await expect(watcher.watch(`${directory}/nope`, options)).rejects.toThrow();
  polled.remove(second);
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  expect(watcher.open).toBe(0);
});

test('rescans are counted, and events are forwarded', async () => {
  // A file system in memory, as many events are needed.
  const [directory, other] = [scratch('/dev/shm'), scratch()];
  using watcher = new CountedWatcher(testLanes);
  using watch = await watcher.watch(directory, options);
  using after = await watcher.watch(other, options);
  writeFileSync(`${directory}/file`, '');
  expect(await watch.next()).toMatchObject([{ type: 'create', name: 'file' }]);
  // More than the backlog of one reader.
  for (let i = 0; i < 40_000; i++) {
    mkdirSync(`${directory}/sub`);
    rmdirSync(`${directory}/sub`);
  }
  // Events are ordered: this one follows all of those.
  writeFileSync(`${other}/file`, '');
  const events = [...((await after.next()) ?? []), ...watch.take()];
  const rescans = events.filter(({ type }) => type === 'rescan').length;
  expect(rescans).toBeGreaterThan(0);
  expect(watcher.rescans).toBe(rescans);
});

test('the end of a watch is forwarded', async () => {
  const directory = `${scratch()}/gone`;
  mkdirSync(directory);
  using watcher = new CountedWatcher(testLanes);
  const watch = await watcher.watch(directory, options);
  expect(watcher).toBeInstanceOf(Watcher);
  rmdirSync(directory);
  expect(await watch.next()).toMatchObject([{ type: 'remove', name: '.' }]);
  expect(await watch.next()).toBeNull();
  watch[Symbol.dispose]();
  expect(watcher.open).toBe(0);
});

test('uploads are counted by files and received bytes', async () => {
  const uploads = new Transfers();
  const received: string[] = [];
  const services: FileServices = {
    admit: () => ADA,
    download: () => Promise.reject(new Error('a download')),
    pack: () => {
      throw new Error('an archive');
    },
    unpack: () => Promise.reject(new Error('an archive')),
    compose: () => Promise.reject(new Error('a composition')),
    async upload(_user, parts) {
      for await (const { path, content } of parts) {
        for await (const piece of content) received.push(`${path} ${piece}`);
      }
      if (received.includes('bad x')) throw new Error('no room');
      return [{ path: '/a', name: 'a', type: 'file' }];
    },
  };
  const counted = countUploads(services, uploads);
  // These methods are forwarded unchanged.
  const context = { metadata: {} } as Parameters<FileServices['upload']>[2];
  const parts = async function* (...contents: string[][]): AsyncGenerator<UploadPart> {
    for (const [path = '', ...pieces] of contents) {
      const content = (async function* () {
        for (const piece of pieces) yield Buffer.from(piece);
      })();
      yield { path, content, direct: () => null, length: null };
    }
  };
  await counted.upload(ADA, parts(['one', 'abc', 'de'], ['two', 'f']), context);
  expect(received).toEqual(['one abc', 'one de', 'two f']);
  expect({ ...uploads }).toEqual({ count: 1, bytes: 6 });
  await expect(counted.upload(ADA, parts(['bad', 'x']), context)).rejects.toThrow('no room');
  expect({ ...uploads }).toEqual({ count: 1, bytes: 7 });
  await expect(counted.download(ADA, '/a')).rejects.toThrow('a download');
  await expect(counted.compose('', { sourcePaths: [], destination: '' })).rejects.toThrow('a composition');
});
