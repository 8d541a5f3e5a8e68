import { execFileSync } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statfsSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  filePart,
  MULTIPART,
  multipartBody,
  openRequest,
  operationsLogged,
  RAW,
  uploadHead,
  uploadParts,
  uploadRaw,
} from '../../support/clients/files-client.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** Files below `directory` that the daemon has open, including unnamed ones. */
function openBelow(directory: string): string[] {
  const descriptors = `/proc/${daemon.pid}/fd`;
  return readdirSync(descriptors)
    .map((fd) => {
      try {
        return readlinkSync(join(descriptors, fd));
      } catch {
        return '';
      }
    })
    .filter((path) => path.startsWith(directory));
}

async function settled(directory: string): Promise<void> {
  await expect.poll(() => openBelow(directory)).toEqual([]);
}

describe('an interrupted upload', () => {
  const OLD = randomBytes(300_000);
  const NEW = randomBytes(700_000);
  const LARGE = randomBytes(3_000_000);

  const BREAKS: ((socket: Socket) => unknown)[] = [
    (socket) => socket.resetAndDestroy(),
    (socket) => socket.destroy(),
    (socket) => socket.end(),
  ];

  /** Requests that would overwrite `old` and make `new` and `deep/er`. */
  function requests(directory: string): { head: string; body: Buffer }[] {
    const at = (name: string) => join(directory, name);
    const query = (name: string) => String(new URLSearchParams({ path: at(name) }));
    const parts = ['old', 'new', 'deep/er'].map((name) => filePart(at(name), NEW));
    const gzip = gzipSync(NEW);
    const length = (body: Buffer) => ({ 'content-length': body.length });
    const chunked = Buffer.concat([
      Buffer.from(`${NEW.length.toString(16)}\r\n`),
      NEW,
      Buffer.from('\r\n0\r\n\r\n'),
    ]);
    const multipart = multipartBody(parts);
    const coded = { 'content-encoding': 'gzip', 'x-metadata-a': '1' };
    return [
      { head: uploadHead(query('old'), { ...RAW, ...length(NEW) }), body: NEW },
      { head: uploadHead(query('deep/er'), { ...RAW, ...length(NEW) }), body: NEW },
      { head: uploadHead(query('old'), { ...RAW, ...length(LARGE) }), body: LARGE },
      { head: uploadHead(query('deep/er'), { ...RAW, ...length(LARGE) }), body: LARGE },
      { head: uploadHead(query('old'), { ...RAW, 'transfer-encoding': 'chunked' }), body: chunked },
      { head: uploadHead(query('old'), { ...RAW, ...coded, ...length(gzip) }), body: gzip },
      { head: uploadHead('', { ...MULTIPART, ...length(multipart) }), body: multipart },
    ];
  }

  test('at any of 1,000 points keeps the old file and leaves no other', async () => {
    const directory = join(daemon.scratch, 'cut');
    mkdirSync(directory);
    writeFileSync(join(directory, 'old'), OLD);
    const before = daemon.log.length;
    const all = requests(directory);
    const cutOne = async ({ head, body }: (typeof all)[number], round: number) => {
      const cut = round === 0 ? 0 : randomInt(body.length);
      const socket = await openRequest(daemon, head, body.subarray(0, cut));
      BREAKS[round % BREAKS.length]?.(socket);
    };
    for (let round = 0; round < 200; round++) {
      await Promise.all(all.map((request) => cutOne(request, round)));
      expect(OLD.equals(readFileSync(join(directory, 'old')))).toBe(true);
    }
    await operationsLogged(daemon, 200 * all.length, before);
    await settled(directory);
    expect(OLD.equals(readFileSync(join(directory, 'old')))).toBe(true);
    expect(readdirSync(directory)).toEqual(['old']);
    expect(daemon.log.slice(before).filter(({ level }) => level >= 50)).toEqual([]);
  });

  test('of more files than are held open keeps those that were already committed', async () => {
    const directory = join(daemon.scratch, 'many');
    const body = multipartBody(
      Array.from({ length: 600 }, (_, index) => filePart(`${directory}/${index}`, 'x')),
    );
    const head = uploadHead('', { ...MULTIPART, 'content-length': body.length });
    const socket = await openRequest(daemon, head, body.subarray(0, -1));
    await until('512 are there', () => existsSync(directory) && readdirSync(directory).length >= 512);
    socket.end();
    await settled(directory);
    expect(readdirSync(directory)).toHaveLength(512);
  });

  test('leaves no files when the daemon is killed', async () => {
    await using victim = await startDaemon();
    const directory = join(victim.scratch, 'killed');
    mkdirSync(directory);
    writeFileSync(join(directory, 'old'), OLD);
    for (const { head, body } of requests(directory)) {
      await openRequest(victim, head, body.subarray(0, 600_000));
    }
    await victim.stop('SIGKILL');
    expect(OLD.equals(readFileSync(join(directory, 'old')))).toBe(true);
    expect(readdirSync(directory)).toEqual(['old']);
  });

  test('into a pipe with a stalled reader closes the pipe', async () => {
    const directory = join(daemon.scratch, 'stalled');
    mkdirSync(directory);
    const pipe = join(directory, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const reader = openSync(pipe, 'r+');
    onTestFinished(() => closeSync(reader));
    // More than the pipe holds, less than the daemon reads ahead: it notices that the client has gone.
    const content = NEW.subarray(0, 300_000);
    const head = uploadHead(`path=${pipe}`, { ...RAW, 'content-length': content.length });
    const socket = await openRequest(daemon, head, content);
    await until('the pipe is open', () => openBelow(pipe).length > 0);
    socket.destroy();
    await settled(pipe);
  });
});

describe('on a full disk', () => {
  const SIZE = 1024 * 1024;
  const used = (directory: string) => {
    const { blocks, bfree, bsize } = statfsSync(directory);
    return (blocks - bfree) * bsize;
  };

  test('a new file is not created', async () => {
    const directory = mountTmpfs('1m');
    const known = await uploadRaw(daemon, join(directory, 'deep/new'), randomBytes(2 * SIZE));
    expect(await known.json()).toEqual({
      code: 507,
      message: `attempted to write ${2 * SIZE} bytes: not enough disk space available`,
    });
    const unknown = await uploadParts(daemon, [
      filePart(join(directory, 'a'), 'fits'),
      filePart(join(directory, 'b'), randomBytes(2 * SIZE)),
    ]);
    expect(await unknown.json()).toEqual({ code: 507, message: 'not enough disk space available' });
    await settled(directory);
    expect(readdirSync(directory)).toEqual([]);
    // The kernel frees a file a little later than its descriptor.
    await expect.poll(() => used(directory)).toBe(0);
  });

  test('an overwrite keeps the old content, wherever it fails', async () => {
    const directory = mountTmpfs('4m');
    const path = join(directory, 'old');
    const old = randomBytes(1_200_000);
    writeFileSync(path, old);
    const { ino } = statSync(path);
    let refused = 0;
    for (let round = 0; round < 40; round++) {
      const content = randomBytes(randomInt(2_400_000, 3_600_000));
      const response = await uploadRaw(daemon, path, content);
      await response.arrayBuffer();
      refused += response.status === 507 ? 1 : 0;
      expect((response.status === 507 ? old : content).equals(readFileSync(path))).toBe(true);
      writeFileSync(path, old);
    }
    expect(refused).toBeGreaterThan(0);
    expect(statSync(path).ino).toBe(ino);
    expect(readdirSync(directory)).toEqual(['old']);
  });

  test('with growing room, each file is stored whole or not at all', async () => {
    const directory = mountTmpfs('1m');
    const [old = '', deep = '', filler = ''] = ['old', 'deep/er/new', 'filler'].map((name) =>
      join(directory, name),
    );
    const [before, after] = [randomBytes(30_000), randomBytes(60_000)];
    const outcomes = new Set<string>();
    for (let free = 0; free <= 240_000; free += 8192) {
      writeFileSync(old, before);
      rmSync(join(directory, 'deep'), { recursive: true, force: true });
      writeFileSync(filler, Buffer.alloc(SIZE - used(directory) - free));
      const { status } = await uploadParts(daemon, [filePart(deep, after), filePart(old, after)]);
      await settled(directory);
      // Files are committed in order: those before the one that did not fit are stored.
      const made = existsSync(deep);
      outcomes.add(`${status} ${made}`);
      expect((status === 200 ? after : before).equals(readFileSync(old))).toBe(true);
      if (made) expect(after.equals(readFileSync(deep))).toBe(true);
      expect(readdirSync(directory).sort()).toEqual([...(made ? ['deep'] : []), 'filler', 'old']);
      rmSync(filler);
    }
    expect(outcomes).toEqual(new Set(['507 false', '507 true', '200 true']));
  });

  test('an overwrite that can be received but not committed keeps the old content', async () => {
    const directory = mountTmpfs('4m');
    const path = join(directory, 'sparse');
    writeFileSync(path, 'beginning');
    truncateSync(path, 2_400_000);
    const old = readFileSync(path);
    for (const size of [2_200_000, 2_400_000, 3_200_000]) {
      const response = await uploadRaw(daemon, path, randomBytes(size), { 'x-metadata-a': '1' });
      expect(await response.json()).toEqual({
        code: 507,
        message: `attempted to write ${size} bytes: not enough disk space available`,
      });
      expect(old.equals(readFileSync(path))).toBe(true);
    }
    await settled(directory);
    await expect.poll(() => used(directory)).toBeLessThan(2_400_000);
  });

  test('without inodes, neither the file nor its directory is created', async () => {
    const directory = mountTmpfs('1m', 'nr_inodes=2');
    const message = 'not enough inodes available';
    const below = await uploadRaw(daemon, join(directory, 'deep/new'), 'x');
    expect(await below.json()).toEqual({ code: 507, message });
    expect(readdirSync(directory)).toEqual([]);
    writeFileSync(join(directory, 'last'), '');
    const response = await uploadRaw(daemon, join(directory, 'new'), 'x');
    expect(await response.json()).toEqual({ code: 507, message });
    expect(readdirSync(directory)).toEqual(['last']);
  });

  test('without room for the metadata, the upload is refused', async () => {
    needs('python3', 'ext4');
    const path = join(daemon.scratch, 'crowded');
    writeFileSync(path, 'old');
    // ext4 keeps all attributes of a file in one block.
    execFileSync('python3', ['-c', `import os; os.setxattr(${JSON.stringify(path)}, 'user.x', b'x' * 3900)`]);
    const content = randomBytes(1_000_000);
    const response = await uploadRaw(daemon, path, content, { 'x-metadata-big': 'v'.repeat(3000) });
    expect(await response.json()).toEqual({
      code: 507,
      message: 'attempted to write metadata: not enough disk space available',
    });
    expect(readFileSync(path, 'utf8')).toBe('old');
    expect(statSync(path).blocks * 512).toBeLessThan(content.length);
  });
});
