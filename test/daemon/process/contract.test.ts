import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { StreamInputRequestSchema } from '../../../src/gen/process/process_pb.js';
import {
  byPid,
  byTag,
  type Clients,
  connectTo,
  type Transcript,
  transcribe,
} from '../../support/clients/clients.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
let process: Clients['process'];
beforeAll(async () => {
  daemon = await startDaemon();
  process = connectTo(daemon.url).process;
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

type StartInit = Parameters<Clients['process']['start']>[0];
type InputMessage = MessageInitShape<typeof StreamInputRequestSchema>;

const sh = (script: string, ...args: string[]) => ({ cmd: '/bin/sh', args: ['-c', script, ...args] });
const as = (user: string) => ({ authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` });
const run = (request: StartInit, headers: Record<string, string> = {}) =>
  transcribe(process.start(request, { headers }));

async function failure(call: Promise<unknown>): Promise<{ code: Code; message: string }> {
  const error = await call.then(
    () => Promise.reject(new Error('the call did not fail')),
    (reason: unknown) => ConnectError.from(reason),
  );
  return { code: error.code, message: error.rawMessage };
}

/** A process whose events are collected, once it has started. */
async function started(request: StartInit) {
  const first = Promise.withResolvers<number>();
  let wake = Promise.withResolvers<void>();
  let output = '';
  const ended = transcribe(process.start(request), (event, { pid }) => {
    if (event.case === 'start') first.resolve(pid);
    if (event.case === 'data') output += Buffer.from(event.value.output.value ?? []);
    wake.resolve();
    wake = Promise.withResolvers();
  });
  const pid = await Promise.race([first.promise, ended.then((end: Transcript) => end.pid)]);
  const wrote = async (text: string) => {
    while (!output.includes(text)) await wake.promise;
  };
  return { pid, ended, wrote, output: () => output };
}

describe('a terminal', () => {
  test.each([true, false])('takes input and shows output with stdin %s', async (stdin) => {
    const terminal = await started({ process: sh('read line; echo "got $line"'), pty: {}, stdin });
    const input = { input: { case: 'pty', value: Buffer.from('it\n') } } as const;
    await process.sendInput({ process: byPid(terminal.pid), input });
    expect(String((await terminal.ended).pty)).toBe('it\r\ngot it\r\n');
  });

  test.each([
    [{}, '24 80'],
    [{ size: {} }, '24 80'],
    [{ size: { cols: 0, rows: 0 } }, '24 80'],
    [{ size: { cols: 0, rows: 50 } }, '50 80'],
    [{ size: { cols: 132, rows: 0 } }, '24 132'],
    [{ size: { cols: 132, rows: 50 } }, '50 132'],
  ])('of the size %j has %s', async (pty, size) => {
    expect(String((await run({ process: sh('stty size'), pty })).pty)).toBe(`${size}\r\n`);
  });
});

describe('StreamInput', () => {
  const start = (selector: ReturnType<typeof byPid> | ReturnType<typeof byTag>): InputMessage => ({
    event: { case: 'start', value: { process: selector } },
  });
  const data = (text: string): InputMessage => ({
    event: {
      case: 'data',
      value: { input: { input: { case: 'stdin', value: new TextEncoder().encode(text) } } },
    },
  });

  async function* messages(...all: InputMessage[]): AsyncGenerator<InputMessage> {
    yield* all;
  }

  test('writes to the process of its start message, even when the tag moves to another process', async () => {
    const first = await started({ process: { cmd: 'cat' }, tag: 'moving' });
    const moved = Promise.withResolvers<void>();
    const call = process.streamInput(
      (async function* (): AsyncGenerator<InputMessage> {
        yield start(byTag('moving'));
        yield data('one ');
        await moved.promise;
        yield data('two ');
      })(),
    );
    await first.wrote('one ');
    const second = await started({ process: { cmd: 'cat' }, tag: 'moving' });
    moved.resolve();
    await call;
    for (const { pid, ended } of [first, second]) {
      await process.closeStdin({ process: byPid(pid) });
      await ended;
    }
    expect([first.output(), second.output()]).toEqual(['one two ', '']);
  });

  test('is not_found for an unknown process, right after the start message', async () => {
    expect(await failure(process.streamInput(messages(start(byTag('nobody')))))).toEqual({
      code: Code.NotFound,
      message: 'process with tag nobody not found',
    });
  });

  test('is failed_precondition once the process has ended', async () => {
    const cat = await started({ process: { cmd: 'cat' } });
    const over = Promise.withResolvers<void>();
    const call = process.streamInput(
      (async function* (): AsyncGenerator<InputMessage> {
        yield start(byPid(cat.pid));
        yield data('one');
        await over.promise;
        yield data('two');
      })(),
    );
    await cat.wrote('one');
    await process.closeStdin({ process: byPid(cat.pid) });
    await cat.ended;
    over.resolve();
    expect(await failure(call)).toEqual({
      code: Code.FailedPrecondition,
      message: `stdin of process ${cat.pid} is closed`,
    });
  });

  test('needs exactly one start message, the first', async () => {
    const cat = await started({ process: { cmd: 'cat' } });
    const twice = messages(start(byPid(cat.pid)), start(byPid(cat.pid)));
    expect(await failure(process.streamInput(twice))).toEqual({
      code: Code.InvalidArgument,
      message: 'only the first message of StreamInput can be start',
    });
    expect(await failure(process.streamInput(messages(data('x'))))).toEqual({
      code: Code.InvalidArgument,
      message: 'the first message of StreamInput must be start',
    });
    await process.closeStdin({ process: byPid(cat.pid) });
    await cat.ended;
  });
});

describe('a program', () => {
  const file = (name: string, content: string | Uint8Array, mode = 0o755) => {
    const path = `${daemon.scratch}/${name}`;
    writeFileSync(path, content);
    chmodSync(path, mode);
    return path;
  };

  test('that is a script without #! is run by /bin/sh, with its own arguments', async () => {
    const script = file('plain', 'printf "%s|" "$0" "$@"; exit 3\n');
    const { stdout, end } = await run({ process: { cmd: script, args: ['a b', '', 'ü'] } });
    expect([String(stdout), end?.exitCode]).toEqual([`${script}|a b||ü|`, 3]);
    const relative = await run({ process: { cmd: './plain', cwd: daemon.scratch }, pty: {} });
    expect(String(relative.pty)).toBe(`${script}|`);
    const envs = { PATH: daemon.scratch };
    expect(String((await run({ process: { cmd: 'plain', envs } })).stdout)).toBe(`${script}|`);
  });

  test('that is an empty file does nothing', async () => {
    expect((await run({ process: { cmd: file('empty', '') } })).end?.status).toBe('exit status 0');
  });

  test('for another machine is refused, and so is a script that the user cannot read', async () => {
    const message = (path: string) => `cannot start '${path}': ENOEXEC: exec format error`;
    const foreign = file(
      'foreign',
      Buffer.from('\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xff\xff', 'latin1'),
    );
    expect(await failure(run({ process: { cmd: foreign } }))).toEqual({
      code: Code.InvalidArgument,
      message: message(foreign),
    });
    chmodSync(daemon.scratch, 0o755);
    const closed = file('closed', 'echo no\n', 0o711);
    expect(await failure(run({ process: { cmd: closed, cwd: '/' } }, as('daemon')))).toEqual({
      code: Code.InvalidArgument,
      message: message(closed),
    });
  });

  test('without execute permission is an invalid argument, by path and by name', async () => {
    const path = file('text', 'echo no\n', 0o644);
    expect(await failure(run({ process: { cmd: path } }))).toEqual({
      code: Code.InvalidArgument,
      message: `cannot start '${path}': EACCES: permission denied`,
    });
    const envs = { PATH: daemon.scratch };
    expect(await failure(run({ process: { cmd: 'text', envs } }))).toEqual({
      code: Code.InvalidArgument,
      message: "cannot start 'text': EACCES: permission denied",
    });
  });

  test('that is a whole command line is refused with a hint', async () => {
    const hint = "cmd is the program alone: put 'ls' into cmd and what follows into args";
    expect(await failure(run({ process: { cmd: 'ls -la' } }))).toEqual({
      code: Code.NotFound,
      message: `cannot start 'ls -la': ENOENT: executable file not found in PATH (${hint})`,
    });
    const path = await failure(run({ process: { cmd: 'ls -la /', cwd: daemon.scratch } }));
    expect(path.code).toBe(Code.NotFound);
    expect(path.message).toContain(`cannot start '${daemon.scratch}/ls -la ': ENOENT: `);
    expect(path.message).toContain(`(${hint})`);
    const { message } = await failure(run({ process: { cmd: '/bin/echo "a/b"' } }));
    expect(message).toContain("put '/bin/echo' into cmd");
  });

  test('may have spaces in its name', async () => {
    const path = file('two words', '#!/bin/sh\necho "$1"\n');
    expect(String((await run({ process: { cmd: path, args: ['ran'] } })).stdout)).toBe('ran\n');
  });
});

test('the environment is the daemon’s PATH, then the user’s, the platform’s and the request’s variables', async () => {
  const init = async (envVars: object) => {
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ envVars });
    await fetch(`${daemon.url}/init`, { method: 'POST', headers, body });
  };
  await init({ HOME: '/of/the/platform', STAGE: 'platform', REGION: 'a' });
  const envs = { USER: 'me', STAGE: 'request' };
  const { stdout } = await run({ process: { cmd: '/usr/bin/env', envs, cwd: '/' } }, as('daemon'));
  await init({});
  expect(String(stdout).trim().split('\n').sort()).toEqual(
    [
      `PATH=${globalThis.process.env.PATH}`,
      'HOME=/of/the/platform',
      'USER=me',
      'LOGNAME=daemon',
      'STAGE=request',
      'REGION=a',
      'PWD=/',
    ].sort(),
  );
});

describe('PWD', () => {
  const pwd = { cmd: '/usr/bin/env' };
  const seen = async (request: StartInit) =>
    String((await run(request)).stdout)
      .match(/^PWD=.*\n/gm)
      ?.join();

  test('is the working directory as the request names it, links included', async () => {
    mkdirSync(`${daemon.scratch}/real`);
    symlinkSync('real', `${daemon.scratch}/link`);
    const cwd = `${daemon.scratch}/link`;
    expect(await seen({ process: { ...pwd, cwd: `${cwd}/../link/` } })).toBe(`PWD=${cwd}\n`);
    expect(await seen({ process: pwd })).toBe('PWD=/root\n');
    expect(await seen({ process: { ...pwd, cwd: '' } })).toBe('PWD=/root\n');
  });

  test('cannot be set by variables', async () => {
    const headers = { 'content-type': 'application/json' };
    const init = (envVars: object) =>
      fetch(`${daemon.url}/init`, { method: 'POST', headers, body: JSON.stringify({ envVars }) });
    await init({ PWD: '/of/the/image' });
    expect(await seen({ process: { ...pwd, cwd: '/tmp', envs: { PWD: '/of/the/client' } } })).toBe(
      'PWD=/tmp\n',
    );
    await init({});
  });
});

describe('SIGKILL', () => {
  const isThere = (pid: number) => {
    try {
      return globalThis.process.kill(pid, 0);
    } catch {
      return false;
    }
  };

  test.each([
    ['a command', {}],
    ['a terminal', { pty: {} }],
  ])('%s has ended when SendSignal returns', async (_name, terminal) => {
    for (let round = 0; round < 50; round++) {
      const sleeper = await started({ process: { cmd: 'sleep', args: ['300'] }, ...terminal });
      await process.sendSignal({ process: byPid(sleeper.pid), signal: 9 });
      expect(isThere(sleeper.pid)).toBe(false);
      const { processes } = await process.list({});
      expect(processes.map(({ pid }) => pid)).not.toContain(sleeper.pid);
      expect((await sleeper.ended).end?.status).toBe('signal: killed');
    }
  });

  test('is answered while the output of the process is not read', async () => {
    const stalled = process.start({ process: { cmd: 'yes' } })[Symbol.asyncIterator]();
    const first = await stalled.next();
    const event = first.value?.event?.event;
    const pid = event?.case === 'start' ? event.value.pid : 0;
    // Every buffer on the way is full when the process writes no more.
    let written = '';
    await expect
      .poll(() => {
        const before = written;
        written = readFileSync(`/proc/${pid}/io`, 'utf8');
        return written === before;
      })
      .toBe(true);
    await process.sendSignal({ process: byPid(pid), signal: 9 });
    expect(isThere(pid)).toBe(false);
    while (!(await stalled.next()).done);
  });
});

describe('SendSignal in JSON', () => {
  const send = async (body: object, path = 'SendSignal') => {
    const response = await fetch(`${daemon.url}/process.Process/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return response.json();
  };
  const process1 = { pid: 1 };

  test.each([
    [
      { signal: 'SIGTERM' },
      "unknown signal 'SIGTERM': use SIGNAL_SIGTERM (15), SIGNAL_SIGKILL (9) or a number",
    ],
    [{ signal: '15' }, "unknown signal '15': use SIGNAL_SIGTERM (15), SIGNAL_SIGKILL (9) or a number"],
    [
      { signal: 'SIGNAL_SIGKILL', scope: 'TREE' },
      "unknown scope 'TREE': use SIGNAL_SCOPE_TREE (1) or a number",
    ],
    [{ signal: 'x'.repeat(1000) }, expect.stringMatching(/^unknown signal 'x{64}…': use /)],
    [{}, 'signal is missing: use SIGNAL_SIGTERM (15), SIGNAL_SIGKILL (9) or a number'],
    [{ signal: 0 }, 'signal is missing: use SIGNAL_SIGTERM (15), SIGNAL_SIGKILL (9) or a number'],
    [{ signal: 65 }, 'invalid signal 65: signals are 1 to 64'],
  ])('%j is refused', async (members, message) => {
    const sleeper = await started({ process: { cmd: 'sleep', args: ['300'] } });
    const selector = { pid: sleeper.pid };
    expect(await send({ process: selector, ...members })).toEqual({ code: 'invalid_argument', message });
    expect(await send({ process: selector, signal: 'SIGNAL_SIGKILL', newer: 'ignored' })).toEqual({});
    await sleeper.ended;
  });

  test('takes a number', async () => {
    const sleeper = await started({ process: { cmd: 'sleep', args: ['300'] } });
    expect(await send({ process: { pid: sleeper.pid }, signal: 12 })).toEqual({});
    expect((await sleeper.ended).end?.status).toBe('signal: user defined signal 2');
    expect(await send({ process: process1, signal: 9 })).toEqual({
      code: 'not_found',
      message: 'process with pid 1 not found',
    });
  });
});
