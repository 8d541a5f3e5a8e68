import { statfsSync } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Signal } from '../../../src/gen/process/process_pb.js';
import { byPid, connectTo, transcribe } from '../../support/clients/clients.ts';
import { outputOf, resultOf, startKept } from '../../support/clients/lasting-output.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

/* `keep_output` of Start, GET /processes/{pid or tag}/result and …/output. */

const KIB = 1024;
const MIB = 1024 * KIB;

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon({ args: ['--output-directory=/tmp', `--output-bytes=${64 * MIB}`] });
});
afterAll(() => daemon[Symbol.asyncDispose]());

/** The files without a name that a daemon has open. */
const unnamed = (pid: number) =>
  openFiles(pid).filter((file) => file.endsWith(' (deleted)') && !/memfd/.test(file));

const complete = (name: string | number, url = daemon.url) =>
  until(
    'everything is written',
    () => resultOf(url, name),
    (result) => result.complete,
  );

const codeOf = (call: Promise<unknown>) =>
  call.then(
    () => null,
    (error: unknown) => ConnectError.from(error).code,
  );

/** A daemon that keeps output on a file system of 1 MiB. */
async function onSmallDisk() {
  const directory = mountTmpfs('1m');
  const other = await startDaemon({ args: [`--output-directory=${directory}`] });
  return { other, directory, [Symbol.asyncDispose]: () => other[Symbol.asyncDispose]() };
}

test('output and end are there when the process has long been forgotten', async () => {
  const pid = await startKept(
    daemon.url,
    'echo out; echo err >&2; exit 3',
    { seconds: 600n },
    { tag: 'long' },
  );
  // The daemon forgets a process 30 s after its end.
  await until('the process is forgotten', async () => {
    const connect = transcribe(connectTo(daemon.url).process.connect({ process: byPid(pid) }));
    return (await codeOf(connect)) === Code.NotFound;
  });
  for (const name of [pid, 'long']) {
    expect(await resultOf(daemon.url, name)).toEqual({
      ...{ pid, tag: 'long', complete: true, error: null },
      end: expect.objectContaining({ reason: 'exited', exitCode: 3, status: 'exit status 3' }),
      streams: { stdout: { droppedBytes: 0, bytes: 4 }, stderr: { droppedBytes: 0, bytes: 4 } },
      keptForSeconds: expect.any(Number),
    });
    expect(await (await outputOf(daemon.url, name)).text()).toBe('out\n');
    expect(await (await outputOf(daemon.url, name, '?stream=stderr')).text()).toBe('err\n');
  }
  expect((await resultOf(daemon.url, pid)).keptForSeconds).toBeLessThan(600);
});

test('a client beside it gets the same output, and a start without it keeps nothing', async () => {
  const process = { cmd: 'bash', args: ['-c', 'seq 100000; exec >&-; echo err >&2'], cwd: '/' };
  const { stdout, pid } = await transcribe(connectTo(daemon.url).process.start({ process, keepOutput: {} }));
  await complete(pid);
  expect(await (await outputOf(daemon.url, pid)).text()).toBe(String(stdout));
  const before = unnamed(daemon.pid).length;
  const other = await transcribe(connectTo(daemon.url).process.start({ process }));
  expect(unnamed(daemon.pid).length).toBe(before);
  const { status } = await outputOf(daemon.url, other.pid);
  expect(status).toBe(404);
});

test('of more output than was asked for, the last bytes of each stream are kept, and the others are counted', async () => {
  const script = 'seq -w 1 2000; seq -w 1 30 >&2';
  const pid = await startKept(daemon.url, script, { bytes: 1000n });
  const { streams } = await complete(pid);
  expect(streams).toEqual({
    stdout: { droppedBytes: 9000, bytes: 10_000 },
    stderr: { droppedBytes: 0, bytes: 90 },
  });
  const response = await outputOf(daemon.url, pid, '?from=10');
  expect([
    response.headers.get('x-envd-dropped-bytes'),
    response.headers.get('x-envd-output-offset'),
  ]).toEqual(['9000', '9000']);
  const lines = Array.from({ length: 200 }, (_, line) => `${line + 1801}\n`);
  expect(await response.text()).toBe(lines.join(''));
});

test('a terminal has one stream', async () => {
  const pid = await startKept(daemon.url, 'echo out; echo err >&2', {}, { pty: {} });
  expect(Object.keys((await complete(pid)).streams)).toEqual(['pty']);
  expect(await (await outputOf(daemon.url, pid)).text()).toBe('out\r\nerr\r\n');
  expect((await outputOf(daemon.url, pid, '?stream=stdout')).status).toBe(400);
});

describe('a part of the output', () => {
  let pid = 0;
  beforeAll(async () => {
    pid = await startKept(daemon.url, 'printf 0123456789');
    await complete(pid);
  });

  test.each([
    ['bytes=2-4', 206, '234', 'bytes 2-4/10'],
    ['bytes=7-', 206, '789', 'bytes 7-9/10'],
    ['bytes=-3', 206, '789', 'bytes 7-9/10'],
    ['bytes=-300', 206, '0123456789', 'bytes 0-9/10'],
    ['bytes=0-1,4-5', 200, '0123456789', null],
    ['lines=1-2', 200, '0123456789', null],
    ['bytes=10-', 416, null, 'bytes */10'],
  ])('%s', async (range, status, text, told) => {
    const response = await outputOf(daemon.url, pid, '', { headers: { range } });
    expect([response.status, response.headers.get('content-range')]).toEqual([status, told]);
    const body = await response.text();
    if (text === null) expect(JSON.parse(body).message).toBe('the output that is kept is from byte 0 to 10');
    else expect(body).toBe(text);
  });

  test('from an offset, as text, and its head', async () => {
    const response = await outputOf(daemon.url, pid, '?from=8', { headers: { accept: 'text/plain' } });
    const { headers } = response;
    expect([headers.get('content-type'), headers.get('content-length'), await response.text()]).toEqual([
      ...['text/plain; charset=utf-8', '2', '89'],
    ]);
    expect(await (await outputOf(daemon.url, pid, '?from=10')).text()).toBe('');
    expect((await outputOf(daemon.url, pid, '?from=11')).status).toBe(416);
    for (const query of ['', '?follow=true']) {
      const head = await outputOf(daemon.url, pid, query, { method: 'HEAD' });
      expect([head.status, head.headers.get('content-type'), await head.text()]).toEqual([
        ...[200, 'application/octet-stream', ''],
      ]);
    }
  });

  test.each(['?from=x', '?from=-1', '?stream=all', '?follow=1'])('%s is refused', async (query) => {
    expect((await outputOf(daemon.url, pid, query)).status).toBe(400);
  });
});

test('output is followed to the end of the process', async () => {
  const { process } = connectTo(daemon.url);
  const pid = await startKept(daemon.url, 'echo one; read a; echo "got $a"; exit 5');
  expect((await resultOf(daemon.url, pid)).keptForSeconds).toBeNull();
  const response = await outputOf(daemon.url, pid, '?follow=true');
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) {
    text += next.value;
    if (text === 'one\n')
      await process.sendInput({
        process: byPid(pid),
        input: { input: { case: 'stdin', value: Buffer.from('it\n') } },
      });
  }
  expect(text).toBe('one\ngot it\n');
  expect((await resultOf(daemon.url, pid)).end?.exitCode).toBe(5);
});

test('after its seconds it is gone, with its file', async () => {
  const before = unnamed(daemon.pid).length;
  const pid = await startKept(daemon.url, 'read a; echo out', { seconds: 1n });
  expect(unnamed(daemon.pid).length).toBe(before + 1);
  await connectTo(daemon.url).process.closeStdin({ process: byPid(pid) });
  await until('it is gone', async () => (await outputOf(daemon.url, pid)).status === 404);
  await until('the file is closed', () => unnamed(daemon.pid).length === before);
});

test.each([
  [{ seconds: 0n }, 'keepOutput.seconds must be a whole number from 1 to 604800'],
  [{ seconds: 2n ** 63n }, 'keepOutput.seconds must be a whole number from 1 to 604800'],
  [{ bytes: 0n }, `keepOutput.bytes must be a whole number from 1 to ${Number.MAX_SAFE_INTEGER}`],
  [{ bytes: 2n ** 63n }, `keepOutput.bytes must be a whole number from 1 to ${Number.MAX_SAFE_INTEGER}`],
])('%o is refused', async (keepOutput, message) => {
  const error = await startKept(daemon.url, 'true', keepOutput).catch(ConnectError.from);
  expect(error).toMatchObject({ code: Code.InvalidArgument, rawMessage: message });
});

test('more than all together may keep is refused, and a start that fails takes nothing', async () => {
  const half = BigInt(14 * MIB);
  const files = unnamed(daemon.pid).length;
  const { process } = connectTo(daemon.url);
  for (let count = 0; count < 10; count++) {
    const start = process.start({ process: { cmd: 'no-such-program' }, keepOutput: { bytes: half } });
    expect(await codeOf(transcribe(start))).toBe(Code.NotFound);
  }
  await until('the files are closed', () => unnamed(daemon.pid).length === files);
  const first = await startKept(daemon.url, 'read a; echo little', { bytes: half });
  const second = await startKept(daemon.url, 'true', { bytes: 2n * half }).catch(ConnectError.from);
  expect(second).toMatchObject({
    code: Code.ResourceExhausted,
    rawMessage: expect.stringContaining('are left (--output-bytes): ask for less'),
  });
  // When a process has ended, what it did not write is free again.
  await process.closeStdin({ process: byPid(first) });
  await complete(first);
  await complete(await startKept(daemon.url, 'true', { bytes: 2n * half }));
});

test('without a directory, and in one that does not exist, it is refused', async () => {
  for (const args of [[], ['--output-directory=/no/such']]) {
    await using other = await startDaemon({ args });
    const error = await startKept(other.url, 'true').catch(ConnectError.from);
    expect(error).toMatchObject({
      code: Code.FailedPrecondition,
      rawMessage: expect.stringMatching(/^cannot keep output/),
    });
    const health = (await (await fetch(`${other.url}/health?verbose`)).json()) as {
      abilities: { keepOutput: { available: boolean } };
    };
    expect(health.abilities.keepOutput.available).toBe(args.length > 0);
  }
});

test('an upgrade takes it over, of processes that run and of those that have ended', async () => {
  await using other = await startDaemon({ args: ['--output-directory=/tmp'] });
  const { url } = other;
  const ended = await startKept(url, 'seq 3; exit 4', { bytes: 5n });
  const running = await startKept(
    url,
    'echo one; read a; echo two; exit 6',
    { seconds: 500n },
    { tag: 'goes-on' },
  );
  await complete(ended, url);
  await until(
    'the first line is kept',
    async () => (await resultOf(url, running)).streams.stdout?.bytes === 4,
  );
  const readies = () => other.log.filter(({ msg }) => msg === 'ready').length;
  const files = unnamed(other.pid).length;
  for (const times of [1, 2]) {
    expect((await fetch(`${url}/upgrade`, { method: 'POST' })).status).toBe(202);
    await until('the new program listens', () => readies() === times + 1);
    expect(unnamed(other.pid).length).toBe(files);
  }
  expect(await resultOf(url, ended)).toMatchObject({
    ...{ complete: true, error: null, end: { exitCode: 4 } },
    streams: { stdout: { droppedBytes: 1, bytes: 6 } },
  });
  expect(await (await outputOf(url, ended)).text()).toBe('\n2\n3\n');
  await connectTo(url).process.closeStdin({ process: byPid(running) });
  expect((await complete('goes-on', url)).end?.exitCode).toBe(6);
  expect(await (await outputOf(url, running)).text()).toBe('one\ntwo\n');
});

describe('on a full disk', () => {
  const MUCH = 'head -c 3000000 /dev/zero; printf end';

  test('the process waits, until there is room', async () => {
    await using disk = await onSmallDisk();
    const { url } = disk.other;
    const script = 'head -c 700000 /dev/zero; read a';
    const first = await startKept(url, script, { bytes: 800_000n, seconds: 1n });
    await until('it is kept', async () => (await resultOf(url, first)).streams.stdout?.bytes === 700_000);
    const second = await startKept(url, `${MUCH}; sleep 1000`, { bytes: 900_000n });
    await until('the disk is full', () => statfsSync(disk.directory).bfree === 0);
    const { end, streams, complete: isComplete } = await resultOf(url, second);
    expect([end, isComplete]).toEqual([null, false]);
    expect(streams.stdout?.bytes).toBeLessThan(900_000);
    // The file of the first process is given back.
    await connectTo(url).process.closeStdin({ process: byPid(first) });
    await until('the first one is gone', async () => (await outputOf(url, first)).status === 404);
    const all = 3_000_003;
    await until('all is kept', async () => (await resultOf(url, second)).streams.stdout?.bytes === all);
    const response = await outputOf(url, second);
    expect(response.headers.get('x-envd-dropped-bytes')).toBe(String(all - 900_000));
    const bytes = Buffer.from(await response.arrayBuffer());
    expect([bytes.length, String(bytes.subarray(-5))]).toEqual([900_000, '\0\0end']);
  });

  test('a process that is killed while it waits ends, and the oldest output is lost', async () => {
    await using disk = await onSmallDisk();
    const { url } = disk.other;
    const pid = await startKept(url, MUCH, { bytes: BigInt(2 * MIB) });
    await until('the disk is full', () => statfsSync(disk.directory).bfree === 0);
    await connectTo(url).process.sendSignal({ process: byPid(pid), signal: Signal.SIGKILL });
    const { end, streams } = await complete(pid, url);
    expect(end?.reason).toBe('signaled');
    expect(streams.stdout?.droppedBytes).toBeGreaterThan(0);
  });

  test('a stop of the daemon does not wait for room', async () => {
    await using disk = await onSmallDisk();
    const { url } = disk.other;
    const pid = await startKept(url, MUCH, { bytes: BigInt(2 * MIB) });
    await until('the disk is full', () => statfsSync(disk.directory).bfree === 0);
    expect((await resultOf(url, pid)).end).toBeNull();
    expect(await disk.other.stop()).toBe(0);
    expect(disk.other.log.filter(({ level }) => level >= 50)).toEqual([]);
  });

  test('the process goes on if it was asked for, and the oldest output is lost', async () => {
    await using disk = await onSmallDisk();
    const { url } = disk.other;
    const pid = await startKept(url, MUCH, { bytes: BigInt(2 * MIB), dropWhenFull: true });
    const { end, error, streams } = await complete(pid, url);
    expect([end?.exitCode, error, streams.stdout?.bytes]).toEqual([0, null, 3_000_003]);
    const bytes = Buffer.from(await (await outputOf(url, pid)).arrayBuffer());
    expect(bytes.length).toBe(3_000_003 - (streams.stdout?.droppedBytes ?? 0));
    expect(bytes.length).toBeGreaterThan(500_000);
    expect(String(bytes.subarray(-5))).toBe('\0\0end');
  });
});
