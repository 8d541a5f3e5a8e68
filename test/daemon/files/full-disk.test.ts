import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  filePart,
  MULTIPART,
  multipartBody,
  openRequest,
  operationsLogged,
  post,
  RAW,
  uploadHead,
  uploadParts,
  uploadRaw,
} from '../../support/clients/files-client.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** An ext4 file system of 8 MiB without reserved blocks, unmounted when the test has finished. */
function mountExt4(): string {
  needs('loop devices');
  const [image, directory] = [join(scratch(), 'image'), scratch()];
  writeFileSync(image, '');
  execFileSync('truncate', ['-s', '8M', image]);
  execFileSync('mkfs.ext4', ['-q', '-m', '0', image]);
  execFileSync('mount', ['-o', 'loop', image, directory]);
  onTestFinished(() => void execFileSync('umount', ['-l', directory]));
  return directory;
}

/** Fills the disk, repeatedly: ext4 has free blocks again after it has written delayed allocations. */
function fill(directory: string): void {
  const free = () => statfsSync(directory).bavail;
  let before: number;
  do {
    before = free();
    for (const size of [64 * KIB, KIB]) appendAll(join(directory, 'filler'), Buffer.alloc(size));
    execFileSync('sync', ['-f', directory]);
  } while (free() < before);
}

function appendAll(path: string, piece: Buffer): void {
  try {
    for (;;) appendFileSync(path, piece);
  } catch (error) {
    expect((error as NodeJS.ErrnoException).code).toBe('ENOSPC');
  }
}

/** A file system without room, and a file of `size` bytes on it. */
function fullDisk(size: number, directory = mountTmpfs('4m')): { path: string; old: Buffer } {
  const [path, old] = [join(directory, 'old'), randomBytes(size)];
  writeFileSync(path, old);
  fill(directory);
  return { path, old };
}

const content = (size: number) => new Uint8Array(randomBytes(size));

describe.each([
  ['a tmpfs', () => mountTmpfs('4m')],
  ['ext4', mountExt4],
])('on %s without room, an overwrite', (_name, mount) => {
  test('with less content is written in place, by every kind of upload', async () => {
    const { path } = fullDisk(60 * KIB, mount());
    linkSync(path, join(path, '../link'));
    chmodSync(path, 0o4640);
    const { ino } = statSync(path);
    const ways: ((body: Uint8Array<ArrayBuffer>) => Promise<Response>)[] = [
      (body) => uploadRaw(daemon, path, body),
      (body) => uploadRaw(daemon, path, new Blob([body]).stream()),
      (body) => uploadRaw(daemon, path, gzipSync(body), { 'content-encoding': 'gzip' }),
      (body) => post(daemon, {}, MULTIPART, multipartBody([filePart(path, Buffer.from(body))])),
      (body) => post(daemon, { path, username: 'daemon', durable: 'true' }, RAW, body),
    ];
    for (const [index, upload] of ways.entries()) {
      const body = content(50 * KIB - index * 10 * KIB);
      expect((await upload(body)).status, `${index}`).toBe(200);
      expect(Buffer.from(body).equals(readFileSync(path))).toBe(true);
      fill(join(path, '..'));
    }
    expect(statSync(path)).toMatchObject({ ino, nlink: 2, uid: 1, gid: 1 });
    expect(statSync(path).mode & 0o7777).toBe(0o640);
    expect(readdirSync(join(path, '..')).filter((name) => name !== 'lost+found')).toEqual([
      'filler',
      'link',
      'old',
    ]);
  });

  test('with as much as the file’s blocks hold is written in place; with more it is refused', async () => {
    const { path, old } = fullDisk(61_000, mount());
    const more = await uploadRaw(daemon, path, content(62 * KIB));
    expect(await more.json()).toEqual({
      code: 507,
      message: `attempted to write ${62 * KIB} bytes: not enough disk space available`,
    });
    expect(old.equals(readFileSync(path))).toBe(true);
    const as = content(60 * KIB);
    expect((await uploadRaw(daemon, path, as)).status).toBe(200);
    expect(Buffer.from(as).equals(readFileSync(path))).toBe(true);
  });

  test('of up to 1 MiB is written in place; a larger one is refused', async () => {
    const { path, old } = fullDisk(2 * MIB, mount());
    for (const upload of [uploadRaw, uploadAsPart]) {
      expect((await upload(daemon, path, content(MIB + 1))).status).toBe(507);
      expect(old.equals(readFileSync(path))).toBe(true);
    }
    for (const upload of [uploadRaw, uploadAsPart]) {
      const body = content(MIB);
      expect((await upload(daemon, path, body)).status).toBe(200);
      expect(Buffer.from(body).equals(readFileSync(path))).toBe(true);
      fullDisk(2 * MIB, remove(path));
    }
  });
});

const uploadAsPart = (to: TestDaemon, path: string, body: Uint8Array) =>
  uploadParts(to, [filePart(path, Buffer.from(body))]);

/** Removes the files that fill the disk; returns their directory. */
function remove(path: string): string {
  const directory = join(path, '..');
  for (const name of ['old', 'filler']) rmSync(join(directory, name), { force: true });
  return directory;
}

describe('an overwrite on a full disk', () => {
  test('that can be received but not copied is written in place', async () => {
    const directory = mountTmpfs('1m');
    const path = join(directory, 'old');
    const old = randomBytes(100 * KIB);
    let inPlace = 0;
    for (let free = 0; free <= 160; free += 8) {
      writeFileSync(path, old);
      fill(directory);
      execFileSync('truncate', ['-s', `-${free * KIB}`, join(directory, 'filler')]);
      const body = content(140 * KIB);
      const { status } = await uploadRaw(daemon, path, body);
      // The content needs 40 KiB more than the old file, whichever way it is written.
      expect(status, `${free} KiB are free`).toBe(free >= 40 ? 200 : 507);
      inPlace += free >= 40 && free < 140 ? 1 : 0;
      expect((status === 200 ? Buffer.from(body) : old).equals(readFileSync(path))).toBe(true);
      remove(path);
    }
    expect(inPlace).toBeGreaterThan(0);
  });

  test('that is interrupted, or does not match its digest, keeps the old content', async () => {
    const { path, old } = fullDisk(60 * KIB);
    const part = randomBytes(20 * KIB);
    const before = daemon.log.length;
    for (const end of ['destroy', 'resetAndDestroy', 'end'] as const) {
      const head = uploadHead(`path=${path}`, { ...RAW, 'content-length': 30 * KIB });
      (await openRequest(daemon, head, part))[end]();
    }
    const digest = `sha-256=:${Buffer.alloc(32).toString('base64')}:`;
    const other = await uploadRaw(daemon, path, new Uint8Array(part), { 'content-digest': digest });
    expect(other.status).toBe(400);
    await until('all have ended', () => daemon.log.length >= before + 4);
    expect(old.equals(readFileSync(path))).toBe(true);
  });

  test('keeps the old content until all of the new one has arrived', async () => {
    const { path, old } = fullDisk(60 * KIB);
    const body = randomBytes(30 * KIB);
    const head = uploadHead(`path=${path}`, { ...RAW, 'content-length': body.length });
    const socket = await openRequest(daemon, head, body.subarray(0, -1));
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
    expect(old.equals(readFileSync(path))).toBe(true);
    const answer = new Promise((resolve) => socket.once('data', resolve));
    socket.write(body.subarray(-1));
    expect(String(await answer)).toMatch(/^HTTP\/1\.1 200 /);
    expect(body.equals(readFileSync(path))).toBe(true);
    socket.destroy();
  });

  test('of several files with metadata is written in place', async () => {
    const { path } = fullDisk(60 * KIB, mountTmpfs('4m'));
    const second = join(path, '../filler');
    const [one, two] = [randomBytes(30 * KIB), randomBytes(500 * KIB)];
    const headers = { ...MULTIPART, 'x-metadata-a': '1' };
    const parts = multipartBody([filePart(path, one), filePart(second, two)]);
    expect(await (await post(daemon, {}, headers, parts)).json()).toMatchObject([
      { path, metadata: { a: '1' } },
      { path: second, metadata: { a: '1' } },
    ]);
    expect(one.equals(readFileSync(path)) && two.equals(readFileSync(second))).toBe(true);
  });

  test('of 40 small files in one upload is written in place', async () => {
    const directory = mountTmpfs('4m');
    const paths = Array.from({ length: 40 }, (_, index) => join(directory, `old-${index}`));
    for (const path of paths) writeFileSync(path, 'a longer content');
    fill(directory);
    const response = await uploadParts(
      daemon,
      paths.map((path) => filePart(path, path)),
    );
    expect(response.status).toBe(200);
    for (const path of paths) expect(readFileSync(path, 'utf8')).toBe(path);
  });

  test('is written in place without a free inode', async () => {
    const directory = mountTmpfs('1m', 'nr_inodes=2');
    const path = join(directory, 'old');
    writeFileSync(path, 'old');
    const body = content(500 * KIB);
    expect((await uploadRaw(daemon, path, body)).status).toBe(200);
    expect(Buffer.from(body).equals(readFileSync(path))).toBe(true);
    expect((await uploadRaw(daemon, join(directory, 'new'), 'x')).status).toBe(507);
    expect(readdirSync(directory)).toEqual(['old']);
  });

  test('of another user’s file clears its set-id bits', async () => {
    const { path } = fullDisk(60 * KIB);
    chownSync(path, 65_534, 65_534);
    chmodSync(path, 0o6777);
    expect((await uploadRaw(daemon, path, content(KIB))).status).toBe(200);
    expect(statSync(path)).toMatchObject({ uid: 0, gid: 0 });
    expect(statSync(path).mode & 0o7777).toBe(0o777);
  });

  test('is refused when its file is removed during the upload', async () => {
    const { path } = fullDisk(60 * KIB);
    const body = randomBytes(30 * KIB);
    const head = uploadHead(`path=${path}`, { ...RAW, 'content-length': body.length });
    const socket = await openRequest(daemon, head, body.subarray(0, -1));
    expect((await fetch(`${daemon.url}/health`)).status).toBe(204);
    rmSync(path);
    fill(join(path, '..'));
    const answer = new Promise((resolve) => socket.once('data', resolve));
    socket.write(body.subarray(-1));
    expect(String(await answer)).toMatch(/^HTTP\/1\.1 507 /);
    expect(existsSync(path)).toBe(false);
    socket.destroy();
  });

  test('is refused when many together would hold too much memory', async () => {
    // Without a free inode each upload is held in memory from its start. A durable one is not kept in the memory for small files before.
    const directory = mountTmpfs('64m', 'nr_inodes=41');
    const paths = Array.from({ length: 40 }, (_, index) => join(directory, `old-${index}`));
    for (const path of paths) writeFileSync(path, 'old');
    const body = randomBytes(1000 * KIB);
    const before = daemon.log.length;
    const sockets = await Promise.all(
      paths.map((path) =>
        openRequest(
          daemon,
          uploadHead(`path=${path}&durable=true`, { ...RAW, 'content-length': body.length }),
          body.subarray(0, -1),
        ),
      ),
    );
    const answered: string[] = [];
    for (const socket of sockets) socket.once('data', (data) => answered.push(String(data)));
    await until('24 are refused', () => answered.length >= 24);
    for (const socket of sockets) socket.write(body.subarray(-1));
    await until('all are answered', () => answered.length === paths.length);
    const statuses = answered.map((answer) => answer.slice(9, 12));
    expect(statuses.filter((status) => status === '200')).toHaveLength(16);
    expect(statuses.filter((status) => status === '507')).toHaveLength(24);
    for (const socket of sockets) socket.destroy();
    // The memory is free again for the next upload.
    await operationsLogged(daemon, paths.length, before);
    for (const path of paths) expect((await uploadRaw(daemon, path, new Uint8Array(body))).status).toBe(200);
  });
});
