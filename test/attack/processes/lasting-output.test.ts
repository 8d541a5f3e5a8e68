import { execFileSync } from 'node:child_process';
import { lchownSync, readdirSync, symlinkSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { byPid, connectTo, transcribe } from '../../support/clients/clients.ts';
import { outputOf, resultOf, startKept } from '../../support/clients/lasting-output.ts';
import { mountFuse, mountSilent } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { publicScratch, scratch } from '../../support/machine/scratch.ts';
import { startDaemon } from '../../support/programs/daemon.ts';
import { bash } from '../../support/programs/workload.ts';
import { until } from '../../support/until.ts';

/* Output that lasts: crowds of it, directories of strangers, and readers that are slower than its end. */

const MOST_KEPT = 1024;
const AT_ONCE = 16;

const keepIn = (directory: string, ...more: string[]) =>
  startDaemon({ args: [`--output-directory=${directory}`, ...more] });

/** How many files of a directory a daemon has open. */
const filesIn = (directory: string, pid: number) =>
  openFiles(pid).filter((file) => file.startsWith(directory)).length;

const refusal = (starting: Promise<unknown>) =>
  starting.then(
    () => null,
    (error: unknown) => ConnectError.from(error),
  );

/** Calls `work` this many times, some at a time. */
async function crowd(times: number, work: () => Promise<unknown>): Promise<void> {
  let left = times;
  const one = async () => {
    while (left-- > 0) await work();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
}

test('a thousand processes keep output, no more are accepted, and others are served', async () => {
  const directory = scratch();
  await using daemon = await keepIn(directory);
  const { url, pid } = daemon;
  await startKept(url, 'true', { seconds: 1n, bytes: 1n });
  const clients = connectTo(url, 'binary');
  const pids: number[] = [];
  await crowd(MOST_KEPT - 1, async () => {
    pids.push(await startKept(clients, 'echo kept; echo err >&2', { bytes: 4096n }));
  });
  await until('the first one is gone', async () => {
    const error = await refusal(startKept(url, 'true', { bytes: 1n }));
    return error === null;
  });
  const error = await refusal(startKept(url, 'true', { bytes: 1n }));
  expect([error?.code, error?.rawMessage]).toEqual([
    Code.ResourceExhausted,
    `cannot keep output: that of ${MOST_KEPT} processes is kept: ask for fewer seconds, or try again later`,
  ]);
  await until('the file of the first one is closed', () => filesIn(directory, pid) === MOST_KEPT);
  const { stdout } = await transcribe(clients.process.start({ process: bash('echo well') }));
  expect(String(stdout)).toBe('well\n');
  for (const one of pids.slice(-3))
    expect(await (await outputOf(url, one, '?follow=true')).text()).toBe('kept\n');
});

test('what many processes have kept for a second leaves nothing behind', async () => {
  const directory = scratch();
  await using daemon = await keepIn(directory, '--output-bytes=1000000');
  const { url, pid } = daemon;
  await startKept(url, 'true', { bytes: 1000n });
  const clients = connectTo(url, 'binary');
  // More at a time than the sum allows are refused.
  await crowd(200, () =>
    refusal(startKept(clients, 'head -c 5000 /dev/zero', { seconds: 1n, bytes: 5000n })),
  );
  await until('descriptors are closed', () => filesIn(directory, pid) === 1);
  // All bytes but those of the first process are free again.
  expect(await refusal(startKept(url, 'true', { bytes: 499_000n }))).toBeNull();
});

test('a start that is repeated by its id finds its process, although no more output can be kept', async () => {
  await using daemon = await keepIn(scratch(), '--output-bytes=1000000');
  const start = (startId: string) => startKept(daemon.url, 'sleep 1000', { bytes: 400_000n }, { startId });
  const pid = await start('one');
  expect(await start('one')).toBe(pid);
  expect((await refusal(start('two')))?.code).toBe(Code.ResourceExhausted);
});

test('a directory whose file system does not answer holds up nobody', async () => {
  const directory = scratch();
  using _ = await mountSilent(directory);
  await using daemon = await keepIn(directory, '--file-timeout=4');
  const refused = Array.from({ length: 20 }, () => refusal(startKept(daemon.url, 'true')));
  const { stdout } = await transcribe(connectTo(daemon.url).process.start({ process: bash('echo well') }));
  expect(String(stdout)).toBe('well\n');
  for (const error of await Promise.all(refused)) expect(error?.code).toBe(Code.DeadlineExceeded);
});

test('a directory on FUSE is refused, because it may stop to answer', async () => {
  const [mounted] = mountFuse();
  await using daemon = await keepIn(mounted);
  const error = await refusal(startKept(daemon.url, 'true'));
  expect([error?.code, error?.rawMessage]).toEqual([
    Code.FailedPrecondition,
    expect.stringContaining('it is on FUSE or on a network'),
  ]);
});

test('a link of another user is refused, and in a directory of another user nothing can be seen', async () => {
  needs('root');
  const theirs = publicScratch();
  const link = join(publicScratch(), 'link');
  symlinkSync(theirs, link);
  lchownSync(link, 65_534, 65_534);
  {
    await using daemon = await keepIn(link);
    const error = await refusal(startKept(daemon.url, 'true'));
    expect([error?.code, error?.rawMessage]).toEqual([
      Code.FailedPrecondition,
      `cannot keep output in '${link}': its path has a link that belongs to uid 65534`,
    ]);
  }
  lchownSync(theirs, 65_534, 65_534);
  await using daemon = await keepIn(theirs);
  const pid = await startKept(daemon.url, 'echo secret');
  await until(
    'all is written',
    () => resultOf(daemon.url, pid),
    (result) => result.complete,
  );
  expect(readdirSync(theirs)).toEqual([]);
  const script = `cat /proc/${daemon.pid}/fd/* 2>/dev/null | grep -c secret`;
  const asNobody = connectTo(daemon.url).process.start(
    { process: bash(script) },
    { headers: { authorization: `Basic ${Buffer.from('nobody:').toString('base64')}` } },
  );
  expect(String((await transcribe(asNobody)).stdout)).toBe('0\n');
});

test('a reader that is slower than the time of its output gets a broken answer, and no bytes of another file', async () => {
  await using daemon = await keepIn(scratch());
  const { url } = daemon;
  const bytes = 64 * 1024 * 1024;
  const script = `head -c ${bytes} /dev/zero; read a`;
  const pid = await startKept(url, script, { bytes: BigInt(bytes), seconds: 1n });
  await until(
    'all is written',
    () => resultOf(url, pid),
    ({ streams }) => streams.stdout?.bytes === bytes,
  );
  const { promise, resolve } = Promise.withResolvers<IncomingMessage>();
  get(`${url}/processes/${pid}/output`, resolve);
  const response = await promise;
  response.pause();
  await connectTo(url).process.closeStdin({ process: byPid(pid) });
  await until('it is gone', async () => (await outputOf(url, pid)).status === 404);
  // Their descriptors have the number that is free now.
  for (let count = 0; count < 3; count++)
    await startKept(url, `head -c ${bytes / 8} /dev/zero | tr '\\0' x`, { bytes: BigInt(bytes / 8) });
  let [length, others] = [0, 0];
  const broken = await (async () => {
    for await (const piece of response) {
      length += piece.length;
      others += piece.filter((byte: number) => byte !== 0).length;
    }
  })().then(
    () => false,
    () => true,
  );
  expect([broken, others]).toEqual([true, 0]);
  expect(length).toBeLessThan(bytes);
});

test('a process whose disk has failed has its end, and an upgrade forgets neither', async () => {
  await using daemon = await keepIn(scratch());
  const { url } = daemon;
  const pid = await startKept(url, 'read a; head -c 300000 /dev/zero; read a; exit 5');
  const limit = (bytes: string) => execFileSync('prlimit', [`--pid=${daemon.pid}`, `--fsize=${bytes}:`]);
  // Writes beyond it fail with EFBIG.
  limit('100000');
  const say = () =>
    connectTo(url).process.sendInput({
      process: byPid(pid),
      input: { input: { case: 'stdin', value: Buffer.from('\n') } },
    });
  await say();
  const failed = await until(
    'the disk has failed',
    () => resultOf(url, pid),
    ({ error }) => error !== null,
  );
  expect(failed).toMatchObject({ end: null, complete: true, error: expect.stringContaining('EFBIG') });
  limit('unlimited');
  const readies = () => daemon.log.filter(({ msg }) => msg === 'ready').length;
  expect((await fetch(`${url}/upgrade`, { method: 'POST' })).status).toBe(202);
  await until('the new program listens', () => readies() === 2);
  expect(await resultOf(url, pid)).toEqual(failed);
  await say();
  const ended = await until(
    'it has its end',
    () => resultOf(url, pid),
    ({ end }) => end !== null,
  );
  expect(ended).toMatchObject({
    end: { exitCode: 5 },
    error: failed.error,
    keptForSeconds: expect.any(Number),
  });
});
