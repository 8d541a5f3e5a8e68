import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo } from '../../support/clients/clients.ts';
import { filePart, MULTIPART, multipartBody, post } from '../../support/clients/files-client.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { archiveOf, paxOf } from '../../support/services/tar-archive.ts';

/* A client names paths that no system call takes: they are refused before anything is done with them. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const TOO_LONG = 'longer than 4095 bytes';
/** More than any error has. */
const SHORT = 2048;
const long = (length: number) => `/${'x'.repeat(length - 1)}`;

test.each(['stat', 'listDir', 'makeDir', 'remove', 'createWatcher'] as const)('%s', async (method) => {
  const { filesystem } = connectTo(daemon.url);
  for (const path of [long(4096), long(15_000_000), 'é'.repeat(2048), `~/${long(4094)}`])
    await expect(filesystem[method]({ path })).rejects.toMatchObject({
      message: expect.stringContaining(`[invalid_argument] path is ${TOO_LONG}`),
    });
});

test('move and watchDir', async () => {
  const { filesystem } = connectTo(daemon.url);
  for (const paths of [
    { source: long(4096), destination: '/tmp/x' },
    { source: '/tmp/x', destination: long(4096) },
  ])
    await expect(filesystem.move(paths)).rejects.toThrow(TOO_LONG);
  const stream = filesystem.watchDir({ path: long(4096) })[Symbol.asyncIterator]();
  await expect(stream.next()).rejects.toThrow(TOO_LONG);
});

test('what counts is the name, not the text that stands for it', async () => {
  const { filesystem } = connectTo(daemon.url);
  const parts = Array.from({ length: 20 }, () => `/${'\uefff'.repeat(200)}`);
  await expect(filesystem.stat({ path: parts.join('') })).rejects.toThrow('path not found');
  await expect(filesystem.stat({ path: `${parts.join('')}${parts[0]}` })).rejects.toThrow(TOO_LONG);
});

describe('over REST', () => {
  const messageOf = async (response: Response) => {
    const text = await response.text();
    expect(response.status).toBe(400);
    expect(text.length).toBeLessThan(SHORT);
    return (JSON.parse(text) as { message: string }).message;
  };

  test('a query', async () => {
    const response = await fetch(`${daemon.url}/files?path=${long(4096)}`);
    expect(await messageOf(response)).toBe(`path is ${TOO_LONG}`);
  });

  test('the file name of a part', async () => {
    const body = multipartBody([filePart(long(5000), 'x')]);
    expect(await messageOf(await post(daemon, {}, MULTIPART, body))).toBe(
      `file name of a part is ${TOO_LONG}`,
    );
  });

  test('a source of compose, and its destination, before any source is looked at', async () => {
    const directory = scratch();
    writeFileSync(`${directory}/a`, 'a');
    const compose = (sourcePaths: string[], destination: string) =>
      fetch(`${daemon.url}/files/compose`, {
        method: 'POST',
        body: JSON.stringify({ source_paths: sourcePaths, destination }),
      });
    expect(await messageOf(await compose(['/missing', long(50_000)], `${directory}/b`))).toBe(
      `source_paths[1] is ${TOO_LONG}`,
    );
    expect(await messageOf(await compose([`${directory}/a`], long(50_000)))).toBe(
      `destination is ${TOO_LONG}`,
    );
    expect(readdirSync(directory)).toEqual(['a']);
  });

  test.each([
    ['name', { path: long(500_000).slice(1) }, '0'],
    ['target of a symbolic link', { linkpath: long(500_000) }, '2'],
    ['target of a hard link', { linkpath: long(500_000).slice(1) }, '1'],
  ])('the %s in an archive', async (_what, records, type) => {
    const directory = scratch();
    const archive = archiveOf(paxOf(records), { name: 'file', type }) as Buffer<ArrayBuffer>;
    const headers = { 'content-type': 'application/x-tar' };
    const message = await messageOf(await post(daemon, { path: directory }, headers, archive));
    expect(message).toMatch(/4095 bytes/);
    expect(existsSync(`${directory}/file`)).toBe(false);
  });
});
