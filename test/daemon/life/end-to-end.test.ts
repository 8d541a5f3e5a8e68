import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  EventType,
  type FilesystemEvent,
  FileType,
  type WatchDirResponse,
} from '../../../src/gen/filesystem/filesystem_pb.js';
import { type Clients, connectTo } from '../../support/clients/clients.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

/** The life of one file, each step by the interface that a client would use. */
describe.each(['json', 'binary'] as const)('end to end over HTTP/1.1 in %s', (codec) => {
  const watching = new AbortController();
  let clients: Clients;
  let directory: string;
  let path: string;
  let events: AsyncIterator<FilesystemEvent>;
  beforeAll(() => {
    clients = connectTo(daemon.url, codec);
    directory = join(daemon.scratch, codec);
    path = join(directory, 'poem.txt');
    mkdirSync(directory);
  });
  afterAll(() => watching.abort());

  const rest = (method: string, route: string, init: RequestInit = {}) =>
    fetch(`${daemon.url}${route}`, { method, ...init });

  /** Reads events until one of `type` for `name` arrives, and returns it. */
  async function event(type: EventType, name: string): Promise<FilesystemEvent> {
    for (;;) {
      const next = await events.next();
      if (next.done) throw new Error(`the watch ended before ${EventType[type]} '${name}'`);
      if (next.value.type === type && next.value.name === name) return next.value;
    }
  }

  test('/health answers 204', async () => {
    const response = await rest('GET', '/health');
    expect([response.status, await response.text()]).toEqual([204, '']);
  });

  test('/init sets variables of every process', async () => {
    const body = JSON.stringify({ defaultUser: 'root', envVars: { MOOD: 'merry' } });
    const headers = { 'content-type': 'application/json' };
    expect((await rest('POST', '/init', { headers, body })).status).toBe(204);
    expect(await (await rest('GET', '/envs')).json()).toEqual({ MOOD: 'merry' });
  });

  test('an upload makes a file', async () => {
    const headers = { 'content-type': 'application/octet-stream', 'x-metadata-author': 'Ada' };
    const response = await rest('POST', `/files?path=${path}`, { headers, body: 'roses\n' });
    expect(response.status).toBe(200);
    const entry = { path, name: 'poem.txt', type: 'file', metadata: { author: 'Ada' } };
    expect(await response.json()).toEqual([entry]);
  });

  test('Stat and ListDir describe it', async () => {
    const { entry } = await clients.filesystem.stat({ path });
    expect(entry).toMatchObject({
      path,
      name: 'poem.txt',
      type: FileType.FILE,
      size: 6n,
      mode: 0o644,
      permissions: '-rw-r--r--',
      owner: 'root',
      metadata: { author: 'Ada' },
    });
    const { entries } = await clients.filesystem.listDir({ path: directory });
    expect(entries.map((listed) => listed.path)).toEqual([path]);
  });

  test('its directory can be watched', async () => {
    const request = { path: directory, recursive: true, includeEntry: true };
    const stream = clients.filesystem.watchDir(request, { signal: watching.signal });
    const messages = stream[Symbol.asyncIterator]();
    const first = await messages.next();
    expect(first.value?.event.case).toBe('start');
    events = filesystemEvents(messages);
  });

  test('a command changes it, and the watch reports that', async () => {
    const script = 'read line; echo "$line are $MOOD" >> poem.txt';
    const config = { cmd: 'sh', args: ['-c', script], cwd: directory };
    const tag = `poet-${codec}`;
    const kinds: (string | undefined)[] = [];
    for await (const message of clients.process.start({ process: config, tag })) {
      const happened = message.event?.event;
      kinds.push(happened?.case);
      if (happened?.case === 'end') expect(happened.value).toMatchObject({ exitCode: 0, exited: true });
      if (happened?.case !== 'start') continue;
      const selector = { case: 'tag', value: tag } as const;
      const input = { case: 'stdin', value: new TextEncoder().encode('violets\n') } as const;
      await clients.process.sendInput({ process: { selector }, input: { input } });
    }
    expect(kinds).toEqual(['start', 'end']);
    const { entry } = await event(EventType.WRITE, 'poem.txt');
    expect(entry).toMatchObject({ path, size: 24n, metadata: { author: 'Ada' } });
  });

  test('a download returns it, whole and in part', async () => {
    const whole = await rest('GET', `/files?path=${path}`);
    expect(whole.status).toBe(200);
    expect(await whole.text()).toBe('roses\nviolets are merry\n');
    const part = await rest('GET', `/files?path=${path}`, { headers: { range: 'bytes=6-12' } });
    expect([part.status, part.headers.get('content-range'), await part.text()]).toEqual([
      206,
      'bytes 6-12/24',
      'violets',
    ]);
  });

  test('Move creates the missing destination directory', async () => {
    const destination = join(directory, 'shelf/poem.txt');
    const { entry } = await clients.filesystem.move({ source: path, destination });
    expect(entry).toMatchObject({ path: destination, metadata: { author: 'Ada' } });
    await event(EventType.CREATE, 'shelf');
    const missing = await clients.filesystem.stat({ path }).catch((error: unknown) => error);
    expect(ConnectError.from(missing)).toMatchObject({ code: Code.NotFound });
    expect((await rest('GET', `/files?path=${path}`)).status).toBe(404);
  });

  test('Remove deletes its directory, and the watch reports that and ends', async () => {
    await clients.filesystem.remove({ path: join(directory, 'shelf') });
    await event(EventType.REMOVE, 'shelf');
    await clients.filesystem.remove({ path: directory });
    await event(EventType.REMOVE, '.');
    expect((await events.next()).done).toBe(true);
  });
});

async function* filesystemEvents(messages: AsyncIterator<WatchDirResponse>): AsyncGenerator<FilesystemEvent> {
  for (let next = await messages.next(); !next.done; next = await messages.next()) {
    const { event } = next.value;
    if (event.case === 'filesystem') yield event.value;
  }
}
