import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectTo, transcribe } from '../../support/clients/clients.ts';
import { drain, startRequest } from '../../support/clients/raw-client.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* A client sends texts that no system call accepts: they are refused before anything is done with them. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const KIB = 1024;
const MIB = 1024 * KIB;
/** More than any error has. */
const SHORT = 2 * KIB;

/** The error of a Start as the last frame of its stream. */
async function startError(process: object) {
  const message = Buffer.from(JSON.stringify({ process }));
  const envelope = Buffer.alloc(5);
  envelope.writeUInt32BE(message.length, 1);
  const response = await fetch(`${daemon.url}/process.Process/Start`, {
    method: 'POST',
    headers: { 'content-type': 'application/connect+json' },
    body: Buffer.concat([envelope, message]),
  });
  const text = (await response.text()).slice(5);
  return { length: text.length, ...JSON.parse(text).error } as {
    length: number;
    code: string;
    message: string;
  };
}

async function post(path: string, body: string | Buffer, headers: Record<string, string> = {}) {
  const response = await fetch(daemon.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body,
  });
  return { status: response.status, text: await response.text() };
}

const long = (length: number) => 'x'.repeat(length);
const ARGUMENT = 'a program takes at most 131071 in one, use a file';

describe('a command that can never be started is invalid_argument', () => {
  test.each([
    ['cmd', { cmd: long(4096) }, 'cmd is longer than 4095 bytes'],
    ['cmd in bytes', { cmd: 'é'.repeat(2048) }, 'cmd is longer than 4095 bytes'],
    ['cmd of megabytes', { cmd: `/${long(2 * MIB)}` }, 'cmd is longer than 4095 bytes'],
    ['cwd', { cmd: 'true', cwd: `/${long(4095)}` }, 'cwd is longer than 4095 bytes'],
    ['an argument', { cmd: 'true', args: ['', long(128 * KIB)] }, `args[1] has 131072 bytes: ${ARGUMENT}`],
    [
      'a variable',
      { cmd: 'true', envs: { A: long(128 * KIB - 2) } },
      `variable 'A' has 131072 bytes: ${ARGUMENT}`,
    ],
    [
      'all arguments',
      { cmd: 'true', args: Array(50).fill(long(127 * KIB)) },
      'args and envs have more than 6291456 bytes: a program takes no more, use a file',
    ],
    [
      'all of many arguments',
      { cmd: 'true', args: Array(62_000).fill(long(100)) },
      'args and envs have more than 6291456 bytes: a program takes no more, use a file',
    ],
    [
      'the elements of PATH',
      { cmd: 'none', envs: { PATH: ':'.repeat(1024) } },
      'PATH has more than 1024 elements',
    ],
  ])('%s', async (_what, process, message) => {
    expect(await startError(process)).toMatchObject({ code: 'invalid_argument', message });
  });
});

test('what a system call takes is started: the longest argument and variable, and 1,024 elements of PATH', async () => {
  const PATH = `${'/none:'.repeat(1023)}/bin`;
  const envs = { PATH, A: long(128 * KIB - 3) };
  const script = 'test $(printf %s "$0" | wc -c) = 131071 && test $(printf %s "$A" | wc -c) = 131069';
  const args = ['-c', script, long(128 * KIB - 1)];
  const { process } = connectTo(daemon.url);
  expect((await transcribe(process.start({ process: { cmd: 'sh', args, envs } }))).end?.status).toBe(
    'exit status 0',
  );
});

test('a search through PATH ends when its client has left, and starts nothing', async () => {
  const bin = `${daemon.scratch}/bin`;
  mkdirSync(bin);
  writeFileSync(`${bin}/marks`, '#!/bin/sh\n: > "$1"\n', { mode: 0o755 });
  // Each element takes a trip to the thread pool.
  const PATH = [...Array.from({ length: 1023 }, (_, index) => `/none/${index}`), bin].join(':');
  const search = (mark: string) =>
    startRequest({ process: { cmd: 'marks', args: [`${bin}/${mark}`], envs: { PATH } } }, 'json');
  const leaving = connect(daemon.port, '127.0.0.1');
  leaving.end(search('left'));
  await until('the call is logged', () =>
    daemon.log.find((one) => one.operation === 'POST /process.Process/Start' && one.aborted),
  );
  // It began later, and looks at as much.
  expect((await drain(daemon.port, search('stayed'))).tail).toContain('exit status 0');
  expect(readdirSync(bin).sort()).toEqual(['marks', 'stayed']);
});

describe('the text of an error is short', () => {
  const megabytes = long(3 * MIB);
  test.each<[string, string, string | Buffer, Record<string, string>?]>([
    ['Stat of a path', '/filesystem.Filesystem/Stat', JSON.stringify({ path: `/${megabytes}` })],
    ['an unknown property', '/filesystem.Filesystem/Stat', JSON.stringify({ [megabytes]: 1 })],
    [
      'a value of a wrong type',
      '/filesystem.Filesystem/ListDir',
      JSON.stringify({ path: '/', depth: megabytes }),
    ],
    [
      'an unknown tag',
      '/process.Process/SendSignal',
      JSON.stringify({ process: { tag: megabytes }, signal: 9 }),
    ],
    [
      'an unknown watcher',
      '/filesystem.Filesystem/GetWatcherEvents',
      JSON.stringify({ watcherId: megabytes }),
    ],
    [
      'a compressed value of a wrong type',
      '/filesystem.Filesystem/ListDir',
      gzipSync(JSON.stringify({ path: '/', depth: megabytes })),
      { 'content-encoding': 'gzip' },
    ],
    ['bad JSON', '/filesystem.Filesystem/Stat', `{"path": ${megabytes}}`],
    ['a setting', '/init', JSON.stringify({ timestamp: long(60 * KIB) })],
    [
      'a source',
      '/files/compose',
      JSON.stringify({ source_paths: [`/${long(60 * KIB)}`], destination: '/x' }),
    ],
  ])('%s', async (_what, path, body, headers) => {
    const { status, text } = await post(path, body, headers);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(text.length).toBeLessThan(SHORT);
  });

  test('of a query, too', async () => {
    const response = await fetch(`${daemon.url}/files?path=/${long(8 * KIB)}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ code: 400, message: 'path is longer than 4095 bytes' });
  });
});
