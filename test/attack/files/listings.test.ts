import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/* Users of the guest make entries that would take much memory or many descriptors: long names, large attributes, deep trees. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** Runs Python in a new directory of a tmpfs, whose attributes may be large. */
function made(script: string): string {
  const path = scratch('/dev/shm');
  execFileSync('python3', ['-c', `import os\nos.chdir("${path}")\n${script}`]);
  return path;
}

const REFUSED = { message: expect.stringContaining('[resource_exhausted]') };

test('a listing of more than 64 MiB is refused', async () => {
  // Each of these characters takes six bytes in JSON, and the path is repeated for each entry.
  const path = made(`
for _ in range(15):
    os.mkdir("\\x01" * 250); os.chdir("\\x01" * 250)
for n in range(3000):
    open(str(n), "w").close()`);
  const json = connectTo(daemon.url).filesystem;
  await expect(json.listDir({ path, depth: 100 })).rejects.toMatchObject(REFUSED);
  expect((await json.listDir({ path, depth: 15 })).entries).toHaveLength(15);
  const { entries } = await connectTo(daemon.url, 'binary').filesystem.listDir({ path, depth: 100 });
  expect(entries).toHaveLength(3015);
});

test('large metadata is refused in sum, and left out of one entry', async () => {
  const { filesystem } = connectTo(daemon.url, 'binary');
  const path = made(`
for n in range(1150):
    open(str(n), "w").close()
    os.setxattr(str(n), "user.svc.large", b"x" * 60000)
os.mkdir("few")
for n in range(9):
    os.setxattr("few", "user.svc." + str(n), b"x" * 60000)`);
  await expect(filesystem.listDir({ path })).rejects.toMatchObject(REFUSED);
  const { entry } = await filesystem.stat({ path: join(path, 'few') });
  expect(Object.values(entry?.metadata ?? {})).toEqual(['x'.repeat(60_000)]);
  expect((await filesystem.stat({ path: join(path, '7') })).entry?.metadata.large).toHaveLength(60_000);
});

/** One more attribute than an archive has. */
const WITH_MANY = `
def with_many(name):
    for n in range(9):
        os.setxattr(name, "user." + str(n), b"x" * 60000)
open("file", "w").close(); with_many("file")
os.mkdir("directory"); with_many("directory")`;

test.each(['tar', 'zip'])('an archive does not leave out attributes in silence, in %s', async (format) => {
  const path = made(WITH_MANY);
  const read = async () => {
    const response = await fetch(`${daemon.url}/files?path=${path}&format=${format}`);
    await response.arrayBuffer();
    return response.status;
  };
  // It depends on the compression whether something has been sent.
  expect([409, 'broken off']).toContain(await read().catch(() => 'broken off'));
});

test('nor does a copy', async () => {
  const { filesystem } = connectTo(daemon.url);
  const path = made(WITH_MANY);
  for (const name of ['file', 'directory']) {
    const copy = filesystem.copy({ source: join(path, name), destination: join(path, 'copy') });
    await expect(copy).rejects.toMatchObject(REFUSED);
  }
});

test('trees of up to 256 levels are copied and moved to another file system', async () => {
  const { filesystem } = connectTo(daemon.url);
  const path = made('os.makedirs("tree" + "/d" * 255)');
  const target = scratch();
  await filesystem.copy({ source: join(path, 'tree'), destination: join(path, 'copy') });
  await filesystem.move({ source: join(path, 'copy'), destination: join(target, 'moved') });
  expect(existsSync(join(target, 'moved', 'd/'.repeat(255)))).toBe(true);

  mkdirSync(join(path, 'tree', 'd/'.repeat(256)));
  const calls = [
    () => filesystem.copy({ source: join(path, 'tree'), destination: join(path, 'copy') }),
    () => filesystem.move({ source: join(path, 'tree'), destination: join(target, 'more') }),
  ];
  for (const call of calls)
    await expect(call()).rejects.toMatchObject({
      message: expect.stringContaining('[failed_precondition] tree is more than 256 levels deep'),
    });
  expect([readdirSync(path), readdirSync(target)]).toEqual([['tree'], ['moved']]);
});

test('a copy of a directory with many names keeps those that are not UTF-8', async () => {
  const { filesystem } = connectTo(daemon.url);
  const path = made(`
os.mkdir("many")
for n in range(3000):
    open(b"many/caf\\xe9 %d" % n, "w").close()`);
  await filesystem.copy({ source: join(path, 'many'), destination: join(path, 'copy') });
  const [from, to] = ['many', 'copy'].map((name) => readdirSync(join(path, name), 'latin1').sort());
  expect(from).toHaveLength(3000);
  expect(to).toEqual(from);
});
