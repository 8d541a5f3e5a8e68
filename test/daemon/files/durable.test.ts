import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, linkSync, mkdirSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { getAttributeSync } from 'fs-xattr';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { filePart, MULTIPART, multipartBody, post, RAW } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** A disk of its own: ext4 in a file, which writes nothing back by itself for ten minutes. */
class Disk {
  readonly directory = scratch();
  readonly #image = join(scratch(), 'disk');

  constructor() {
    needs('loop devices');
    execFileSync('truncate', ['-s', '64M', this.#image]);
    execFileSync('mkfs.ext4', ['-q', this.#image]);
    mount(this.#image, this.directory);
  }

  /** The file system after a power cut at this moment, mounted: what has reached the image. */
  afterPowerCut(): string {
    const copy = join(scratch(), 'disk');
    copyFileSync(this.#image, copy);
    const directory = scratch();
    mount(copy, directory);
    return directory;
  }
}

function mount(image: string, directory: string): void {
  execFileSync('mount', ['-o', 'loop,commit=600', image, directory]);
  onTestFinished(() => {
    execFileSync('umount', ['-l', directory]);
  });
}

function upload(path: string, body: string, durable?: string, headers = {}): Promise<Response> {
  const query: Record<string, string> = {
    path,
    username: 'daemon',
    ...(durable !== undefined && { durable }),
  };
  return post(daemon, query, { ...RAW, ...headers }, body);
}

const content = 'content '.repeat(50_000);

describe('an upload with durable=true', () => {
  test('survives a power cut with its directories, owner and metadata; one with durable=false does not', async () => {
    const disk = new Disk();
    const headers = { 'x-metadata-key': 'value' };
    expect((await upload(join(disk.directory, 'd/e/f/new'), content, 'true', headers)).status).toBe(200);
    expect((await upload(join(disk.directory, 'a/b/lost'), content, 'false')).status).toBe(200);
    const left = disk.afterPowerCut();
    expect(readFileSync(join(left, 'd/e/f/new'), 'utf8')).toBe(content);
    expect(statSync(join(left, 'd/e/f/new')).uid).toBe(1);
    expect(statSync(join(left, 'd/e')).uid).toBe(1);
    expect(getAttributeSync(join(left, 'd/e/f/new'), 'user.svc.key').toString()).toBe('value');
    expect(() => statSync(join(left, 'a'))).toThrow('ENOENT');
  });

  test('survives a power cut when it overwrites a file', async () => {
    const disk = new Disk();
    const [file, other] = [join(disk.directory, 'file'), join(disk.directory, 'other')];
    expect((await upload(file, 'old', 'true')).status).toBe(200);
    expect((await upload(other, 'old', 'true')).status).toBe(200);
    chmodSync(file, 0o640);
    linkSync(file, join(disk.directory, 'link'));
    expect((await upload(other, content)).status).toBe(200);
    expect((await upload(file, content, 'true')).status).toBe(200);
    const left = disk.afterPowerCut();
    expect(readFileSync(join(left, 'link'), 'utf8')).toBe(content);
    expect(statSync(join(left, 'file')).mode & 0o777).toBe(0o640);
    expect(readFileSync(join(left, 'other'), 'utf8')).not.toBe(content);
  });

  test('survives a power cut when its path leads through a link to a directory that was not synced', async () => {
    const disk = new Disk();
    mkdirSync(join(disk.directory, 'real/deep'), { recursive: true });
    const link = join(scratch(), 'link');
    symlinkSync(join(disk.directory, 'real/deep'), link);
    expect((await upload(join(link, 'file'), content, 'true')).status).toBe(200);
    expect(readFileSync(join(disk.afterPowerCut(), 'real/deep/file'), 'utf8')).toBe(content);
  });

  test('survives a power cut with all of its files', async () => {
    const disk = new Disk();
    const names = Array.from({ length: 300 }, (_, index) => `${index % 7}/file-${index}`);
    const body = multipartBody(names.map((name) => filePart(join(disk.directory, name), name)));
    expect((await post(daemon, { durable: 'true' }, MULTIPART, body)).status).toBe(200);
    const left = disk.afterPowerCut();
    for (const name of names) expect(readFileSync(join(left, name), 'utf8')).toBe(name);
  });

  test('to a device succeeds, though nothing can be synced', async () => {
    expect((await upload('/dev/null', content, 'true')).status).toBe(200);
  });

  test('accepts no values but true and false', async () => {
    for (const word of ['', '1', 'yes', 'TRUE']) {
      const response = await upload(join(scratch(), 'x'), content, word);
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({
        message: `durable must be true or false, not '${word}'`,
      });
    }
  });
});
