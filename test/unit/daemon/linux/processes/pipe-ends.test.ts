import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { expect, onTestFinished, test } from 'vitest';
import { PipePoller, type ReadEnd } from '../../../../../src/daemon/linux/processes/pipe-ends.ts';
import { type ProcessExit, spawnWithPipes } from '../../../../../src/daemon/linux/processes/spawn.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { ROOT } from '../../../../support/machine/users.ts';

const SIGPIPE = 13;
const poller = new PipePoller();

/** Runs a shell script; returns the reading end of its stdout. */
async function start(script: string): Promise<{ stdout: number; exit: Promise<ProcessExit> }> {
  const launch = { file: '/bin/sh', args: ['sh', '-c', script], environment: { PATH: '/usr/bin:/bin' } };
  const { process: started, pipes } = await spawnWithPipes(
    { ...launch, cwd: '/', user: ROOT, cgroup: null, limitMs: 10_000 },
    false,
  );
  closeSync(pipes.stderr);
  return { stdout: pipes.stdout, exit: started.exit };
}

const outputOf = async (script: string) => (await start(script)).stdout;

const bytesOf = (chunks: readonly Buffer[]) => chunks.reduce((sum, chunk) => sum + chunk.length, 0);

test('all bytes are reported, and the descriptor is closed at the end', async () => {
  const chunks: Buffer[] = [];
  const descriptor = await outputOf('seq 1 200000');
  const end = poller.read(descriptor, (bytes) => chunks.push(bytes));
  await end.closed;
  const expected = Array.from({ length: 200_000 }, (_, index) => `${index + 1}\n`).join('');
  expect(Buffer.concat(chunks).toString() === expected).toBe(true);
  expect(() => fstatSync(descriptor)).toThrow('EBADF');
  expect(end.pending).toBe(0);
  // Calls after the end are no errors.
  end.setPaused(true);
  end.setPaused(false);
  end.discard();
});

test('what splice(2) refuses is read all the same', async () => {
  needs('kernel log');
  const log = openSync('/dev/kmsg', constants.O_RDONLY | constants.O_NONBLOCK);
  const read = Promise.withResolvers<Buffer>();
  const end = poller.read(log, read.resolve);
  onTestFinished(() => end.close());
  expect(String(await read.promise)).toMatch(/^\d+,\d+,\d+,/);
});

test('reported bytes are not changed by later reads', async () => {
  const told: Record<string, Buffer[]> = { a: [], b: [] };
  const readers = await Promise.all(
    Object.entries(told).map(async ([letter, chunks]) => {
      const script = `for i in 1 2 3 4 5 6 7 8; do head -c 3000 /dev/zero | tr '\\0' ${letter}; done`;
      return poller.read(await outputOf(script), (bytes) => chunks.push(bytes));
    }),
  );
  await Promise.all(readers.map(({ closed }) => closed));
  for (const [letter, chunks] of Object.entries(told)) {
    expect(String(Buffer.concat(chunks)) === letter.repeat(24_000), letter).toBe(true);
  }
});

test('a pause takes effect before the next chunk, and the pending bytes can be queried', async () => {
  const chunks: Buffer[] = [];
  const end: ReadEnd = poller.read(await outputOf('head -c 1000000 /dev/zero'), (bytes) => {
    chunks.push(bytes);
    end.setPaused(true);
    end.setPaused(true);
  });
  for (let told = 1; bytesOf(chunks) < 1_000_000; told++) {
    await expect.poll(() => chunks.length).toBe(told);
    if (bytesOf(chunks) < 1_000_000) await expect.poll(() => end.pending).toBeGreaterThan(0);
    expect(chunks.length).toBe(told);
    end.setPaused(false);
  }
  end.setPaused(false);
  await end.closed;
  expect(bytesOf(chunks)).toBe(1_000_000);
});

test('hundreds of pipes, whose descriptor numbers are reused, are read', async () => {
  for (let round = 0; round < 3; round++) {
    const ends = await Promise.all(
      Array.from({ length: 100 }, async (_, index) => {
        let text = '';
        const end = poller.read(await outputOf(`echo ${index}`), (bytes) => {
          text += bytes;
        });
        await end.closed;
        return text;
      }),
    );
    expect(ends).toEqual(Array.from({ length: 100 }, (_, index) => `${index}\n`));
  }
});

/** Runs a module that has a `poller` and reads its standard input; returns its exit status and output. */
async function runModule(code: string, input: string | null): Promise<[number, string]> {
  const url = new URL('../../../../../src/daemon/linux/processes/pipe-ends.ts', import.meta.url).href;
  const prelude = `const poller = new (await import(${JSON.stringify(url)})).PipePoller();`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', prelude + code], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  if (input !== null) child.stdin.end(input);
  let printed = '';
  child.stdout.on('data', (text) => {
    printed += text;
  });
  const [status] = await once(child, 'close');
  child.stdin.destroy();
  return [status, printed];
}

test('an error of a listener is an uncaught exception, and reading continues', async () => {
  const code = `
    process.on('uncaughtException', ({ message }) => console.log(message));
    await poller.read(0, () => { throw new Error('of the listener'); }).closed;
    console.log('closed');`;
  expect(await runModule(code, 'input')).toEqual([0, 'of the listener\nclosed\n']);
});

test('an unreferenced pipe does not keep the process alive', async () => {
  expect(await runModule('poller.read(0, () => {}).discard();', null)).toEqual([0, '']);
});

test('when a worker ends its pipes are closed, and the writers get SIGPIPE', async () => {
  const writers = await Promise.all([1, 2].map(() => start('exec cat /dev/zero')));
  const workerData = writers.map(({ stdout }) => stdout);
  const worker = new Worker(new URL('../../../../support/workers/pipes-worker.ts', import.meta.url), {
    workerData,
  });
  await once(worker, 'message');
  await worker.terminate();
  const ends = await Promise.all(writers.map(({ exit }) => exit));
  expect(ends.map(({ signal }) => signal)).toEqual([SIGPIPE, SIGPIPE]);
});
