import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { EventType, FileType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { connectTo } from '../../support/clients/clients.ts';
import {
  filePart,
  get,
  MULTIPART,
  post,
  RAW,
  uploadParts,
  uploadRaw,
} from '../../support/clients/files-client.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/** A name that is not UTF-8, and the text that stands for it. */
const RAW_NAME = Buffer.from('caf\xe9.txt', 'latin1');
const TOLD = 'caf\uefe9.txt';
/** A name in UTF-8 whose character stands for a byte on the wire. */
const ESCAPE_NAME = Buffer.from('icon-\uef99');
const ESCAPE_TOLD = 'icon-\uefee\uefbe\uef99';

const NAMES = [
  ['that is not UTF-8', RAW_NAME, TOLD],
  ['that looks like one', ESCAPE_NAME, ESCAPE_TOLD],
] as const;

let daemon: TestDaemon;
let directory: string;
const raw = (...names: readonly Buffer[]) =>
  Buffer.concat([Buffer.from(directory), ...names.flatMap((name) => [Buffer.from('/'), name])]);

beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  directory = scratch();
});

const filesystem = () => connectTo(daemon.url).filesystem;

describe.each(NAMES)('a name %s', (_, name, told) => {
  const path = () => `${directory}/${told}`;

  test('is told by ListDir and Stat, and taken by Stat', async () => {
    mkdirSync(raw(name));
    writeFileSync(raw(name, name), 'content');
    const { entries } = await filesystem().listDir({ path: directory, depth: 2 });
    expect(entries.map((entry) => [entry.name, entry.path])).toEqual([
      [told, path()],
      [told, `${path()}/${told}`],
    ]);
    const { entry } = await filesystem().stat({ path: `${path()}/${told}` });
    expect(entry).toMatchObject({ name: told, path: `${path()}/${told}`, size: 7n, type: FileType.FILE });
    expect((await filesystem().listDir({ path: path() })).entries.map((found) => found.path)).toEqual([
      `${path()}/${told}`,
    ]);
  });

  test('is told as the target of a link', async () => {
    writeFileSync(raw(name), '');
    symlinkSync(name, raw(Buffer.from('link')));
    const { entry } = await filesystem().stat({ path: `${directory}/link` });
    expect(entry).toMatchObject({ symlinkTarget: path(), type: FileType.FILE });
  });

  test('is taken by MakeDir, Move and Remove', async () => {
    expect((await filesystem().makeDir({ path: `${path()}/${told}` })).entry).toMatchObject({ name: told });
    expect(statSync(raw(name, name)).isDirectory()).toBe(true);
    const moved = await filesystem().move({
      source: `${path()}/${told}`,
      destination: `${path()}/to-${told}`,
    });
    expect(moved.entry).toMatchObject({ name: `to-${told}`, path: `${path()}/to-${told}` });
    expect(readdirSync(raw(name), 'buffer')).toEqual([Buffer.concat([Buffer.from('to-'), name])]);
    await filesystem().remove({ path: path() });
    expect(readdirSync(directory)).toEqual([]);
  });

  test('is taken by Move to another file system', async () => {
    const other = scratch('/dev/shm');
    mkdirSync(raw(name));
    writeFileSync(raw(name, name), 'content');
    await filesystem().move({ source: path(), destination: `${other}/${told}` });
    const target = Buffer.concat([Buffer.from(`${other}/`), name, Buffer.from('/'), name]);
    expect(readFileSync(target, 'utf8')).toBe('content');
    expect(readdirSync(directory)).toEqual([]);
    await expect(
      filesystem().move({ source: `${other}/${told}`, destination: `${other}/${told}/below` }),
    ).rejects.toThrow('cannot move a directory into itself');
  });

  test.each([
    ['small', 100],
    ['large', 2_000_000],
  ])('is taken by uploads and downloads of %s files', async (_size, size) => {
    const content = Buffer.alloc(size, 'c') as Buffer<ArrayBuffer>;
    for (const query of [{}, { durable: 'true' }, { append: 'true' }] as Record<string, string>[]) {
      const stored = await post(daemon, { path: path(), ...query }, RAW, content);
      expect(await stored.json()).toEqual([{ path: path(), name: told, type: 'file' }]);
    }
    expect(readdirSync(directory, 'buffer')).toEqual([name]);
    expect(readFileSync(raw(name)).equals(Buffer.concat([content, content]))).toBe(true);
    const download = await get(daemon, path());
    expect(download.headers.get('content-disposition')).toBe(
      `inline; filename*=utf-8''${encodeURIComponent(told)}`,
    );
    expect((await download.arrayBuffer()).byteLength).toBe(2 * size);
  });

  test('is taken from a part of a form', async () => {
    const stored = await uploadParts(daemon, [filePart(path(), 'content')]);
    expect(await stored.json()).toEqual([{ path: path(), name: told, type: 'file' }]);
    expect(readFileSync(raw(name), 'utf8')).toBe('content');
  });

  test('is taken by compose, and told', async () => {
    writeFileSync(raw(name), 'content');
    const answer = await fetch(`${daemon.url}/files/compose`, {
      method: 'POST',
      body: JSON.stringify({ source_paths: [path()], destination: `${path()}-2` }),
    });
    expect(await answer.json()).toEqual({ path: `${path()}-2`, name: `${told}-2`, type: 'file' });
    expect(readFileSync(raw(Buffer.concat([name, Buffer.from('-2')])), 'utf8')).toBe('content');
    expect(readdirSync(directory).length).toBe(1);
  });

  test('is kept by archives, whose names are bytes', async () => {
    mkdirSync(raw(name));
    writeFileSync(raw(name, name), 'content');
    const archive = await fetch(
      `${daemon.url}/files?${new URLSearchParams({ path: path(), format: 'tar' })}`,
    );
    expect(archive.headers.get('content-disposition')).toContain(encodeURIComponent(told));
    const bytes = Buffer.from(await archive.arrayBuffer());
    const listed = execFileSync('tar', ['-t', '--quoting-style=literal'], { input: bytes });
    expect(listed.includes(name)).toBe(true);
    const unpacked = await post(
      daemon,
      { path: `${path()}-2` },
      { 'content-type': 'application/x-tar' },
      bytes,
    );
    expect(await unpacked.json()).toMatchObject({ path: `${path()}-2`, files: 1 });
    expect(readFileSync(raw(Buffer.concat([name, Buffer.from('-2')]), name), 'utf8')).toBe('content');
  });

  test('is told by watches, of the directory and below', async () => {
    mkdirSync(raw(name));
    const { watcherId } = await filesystem().createWatcher({
      path: path(),
      recursive: true,
      includeEntry: true,
    });
    mkdirSync(raw(name, name));
    writeFileSync(raw(name, name, name), 'content');
    const seen: unknown[] = [];
    await until(
      'the events',
      async () => {
        const { events } = await filesystem().getWatcherEvents({ watcherId });
        seen.push(...events.map((event) => [event.type, event.name, event.entry?.path]));
        return seen;
      },
      (events) => events.length >= 2,
    );
    expect(seen.slice(0, 2)).toEqual([
      [EventType.CREATE, told, `${path()}/${told}`],
      [EventType.CREATE, `${told}/${told}`, `${path()}/${told}/${told}`],
    ]);
    await filesystem().removeWatcher({ watcherId });
  });

  test('is taken as the directory and the program of a process', async () => {
    mkdirSync(raw(name));
    writeFileSync(raw(name, name), '#!/bin/sh\npwd | od -An -c\n', { mode: 0o755 });
    const output: Buffer[] = [];
    const { process } = connectTo(daemon.url);
    const stream = process.start({ process: { cmd: `${path()}/${told}`, cwd: path() } });
    for await (const { event } of stream)
      if (event?.event.case === 'data' && event.event.value.output.case === 'stdout')
        output.push(Buffer.from(event.event.value.output.value));
    const shown = execFileSync('od', ['-An', '-c'], { input: Buffer.concat([raw(name), Buffer.from('\n')]) });
    expect(Buffer.concat(output).toString()).toBe(shown.toString());
  });
});

test('two texts for one name are one path', async () => {
  const parts = [filePart(`${directory}/é`, 'first'), filePart(`${directory}/\uefc3\uefa9`, 'second')];
  const answer = await uploadParts(daemon, parts);
  expect(answer.status).toBe(400);
  expect(readdirSync(directory)).toEqual(['é']);
  expect(readFileSync(`${directory}/é`, 'utf8')).toBe('first');
});

test('an error tells the name so that it can be sent again', async () => {
  const answer = await get(daemon, `${directory}/${TOLD}`);
  expect(await answer.json()).toEqual({ code: 404, message: `path '${directory}/${TOLD}' does not exist` });
});

test('a form whose file name is not UTF-8 is refused: its bytes are lost in the parser', async () => {
  const head = Buffer.from(`--B\r\nContent-Disposition: form-data; name="file"; filename="${directory}/`);
  const body = Buffer.concat([head, RAW_NAME, Buffer.from('"\r\n\r\ncontent\r\n--B--\r\n')]);
  const headers = { ...MULTIPART, 'content-type': 'multipart/form-data; boundary=B' };
  const answer = await post(daemon, {}, headers, body as Buffer<ArrayBuffer>);
  expect(answer.status).toBe(400);
  expect(await answer.text()).toContain('file name of a part is not UTF-8');
  expect(readdirSync(directory)).toEqual([]);
  await uploadRaw(daemon, `${directory}/\ufffd`, 'a file may be called so');
  expect(readdirSync(directory)).toEqual(['\ufffd']);
});
