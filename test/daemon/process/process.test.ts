import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { StreamInputRequestSchema } from '../../../src/gen/process/process_pb.js';
import { byPid, byTag, type Clients, connectTo, transcribe } from '../../support/clients/clients.ts';
import { childrenOf, isAsleep, openFiles, runs } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { until } from '../../support/until.ts';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const sh = (script: string) => ({ cmd: '/bin/sh', args: ['-c', script] });
const bytes = (text: string) => new TextEncoder().encode(text);

async function failure(call: () => Promise<unknown>): Promise<{ code: Code; message: string }> {
  const error = await call().then(
    () => null,
    (reason: unknown) => ConnectError.from(reason),
  );
  if (!error) throw new Error('the call did not fail');
  return { code: error.code, message: error.rawMessage };
}

describe.each(['json', 'binary'] as const)('over %s', (codec) => {
  let clients: Clients;
  beforeAll(() => {
    clients = connectTo(daemon.url, codec);
  });

  test('a command yields start, data and end', async () => {
    const seen: (string | undefined)[] = [];
    const run = await transcribe(
      clients.process.start({ process: sh('echo out; echo err >&2; exit 3') }),
      (event) => seen.push(event.case),
    );
    expect(seen[0]).toBe('start');
    expect(seen.at(-1)).toBe('end');
    expect(String(run.stdout)).toBe('out\n');
    expect(String(run.stderr)).toBe('err\n');
    expect(run.end).toEqual({ exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' });
    expect(runs(run.pid)).toBe(false);
  });

  test('exit status 0 has no error', async () => {
    const run = await transcribe(clients.process.start({ process: { cmd: 'true' } }));
    expect(run.end).toEqual({ exitCode: 0, exited: true, status: 'exit status 0', error: undefined });
  });

  test('every byte value arrives through pipes', async () => {
    const script = 'for i in $(seq 256); do printf "\\\\$(printf %03o $((i-1)))"; done; seq 1 20000';
    const run = await transcribe(clients.process.start({ process: { cmd: 'bash', args: ['-c', script] } }));
    const wanted = Buffer.concat([
      Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)),
      Buffer.from(Array.from({ length: 20000 }, (_, i) => `${i + 1}\n`).join('')),
    ]);
    expect(run.stdout.equals(wanted)).toBe(true);
  });

  test('every byte value arrives through a terminal, also from short programs', async () => {
    const wanted = Array.from({ length: 2000 }, (_, i) => `${i + 1}\r\n`).join('');
    for (let round = 0; round < 20; round++) {
      const run = await transcribe(
        clients.process.start({ process: { cmd: 'seq', args: ['2000'] }, pty: {} }),
      );
      expect(String(run.pty)).toBe(wanted);
    }
  });

  test('a terminal has a size, takes input and can be resized', async () => {
    const script = 'stty size; trap "stty size; exit" WINCH; read line; echo "got $line"; sleep 300 & wait';
    const run = await transcribe(
      clients.process.start({
        process: { cmd: 'bash', args: ['-c', script] },
        pty: { size: { cols: 90, rows: 30 } },
      }),
      async (event, { pid }) => {
        if (event.case !== 'data') return;
        const text = String(Buffer.from(event.value.output.value ?? []));
        const type = (line: string) =>
          clients.process.sendInput({
            process: byPid(pid),
            input: { input: { case: 'pty', value: bytes(line) } },
          });
        if (text.includes('30 90')) await type('hëllo\n');
        if (text.includes('got'))
          await clients.process.update({ process: byPid(pid), pty: { size: { cols: 100, rows: 40 } } });
      },
    );
    expect(String(run.pty)).toContain('got hëllo\r\n');
    expect(String(run.pty)).toContain('40 100');
    expect(run.end?.exitCode).toBe(0);
  });

  test('input by tag arrives, and CloseStdin ends it', async () => {
    const tag = `cat-${codec}`;
    const run = await transcribe(clients.process.start({ process: { cmd: 'cat' }, tag }), async (event) => {
      const send = (text: string) =>
        clients.process.sendInput({
          process: byTag(tag),
          input: { input: { case: 'stdin', value: bytes(text) } },
        });
      if (event.case === 'start') await send('one ');
      if (event.case !== 'data') return;
      const text = String(Buffer.from(event.value.output.value ?? []));
      if (text === 'one ') await send('two');
      if (text === 'two') {
        await clients.process.closeStdin({ process: byTag(tag) });
        // A second CloseStdin succeeds, unless the process has ended meanwhile.
        await clients.process.closeStdin({ process: byTag(tag) }).catch((error: unknown) => {
          expect(ConnectError.from(error).code).toBe(Code.NotFound);
        });
      }
    });
    expect(String(run.stdout)).toBe('one two');
  });

  test('StreamInput writes in order', async () => {
    const lines = Array.from({ length: 500 }, (_, i) => `${i}\n`);
    const tag = `stream-${codec}`;
    async function* requests(): AsyncGenerator<MessageInitShape<typeof StreamInputRequestSchema>> {
      yield { event: { case: 'start', value: { process: byTag(tag) } } } as const;
      yield { event: { case: 'keepalive', value: {} } } as const;
      for (const line of lines) {
        yield {
          event: { case: 'data', value: { input: { input: { case: 'stdin', value: bytes(line) } } } },
        } as const;
      }
    }
    const run = await transcribe(clients.process.start({ process: { cmd: 'cat' }, tag }), async (event) => {
      if (event.case !== 'start') return;
      await clients.process.streamInput(requests());
      await clients.process.closeStdin({ process: byTag(tag) });
    });
    expect(String(run.stdout)).toBe(lines.join(''));
  });

  test('stdin: false connects /dev/null', async () => {
    const run = await transcribe(
      clients.process.start({ process: sh('readlink /proc/self/fd/0'), stdin: false }),
    );
    expect(String(run.stdout)).toBe('/dev/null\n');
  });

  test.each([
    ['KILL', 'signal: killed'],
    ['TERM', 'signal: terminated'],
    ['RTMIN+3', 'signal: signal 37'],
  ])('a death by SIG%s is reported', async (name, status) => {
    const run = await transcribe(
      clients.process.start({ process: { cmd: 'bash', args: ['-c', `kill -${name} $$`] } }),
    );
    expect(run.end).toEqual({ exitCode: -1, exited: false, status, error: status });
  });

  test('SendSignal reaches the whole group', async () => {
    const run = await transcribe(
      clients.process.start({ process: sh('sleep 300 & echo $!; wait') }),
      async (event, { pid }) => {
        if (event.case === 'data') await clients.process.sendSignal({ process: byPid(pid), signal: 9 });
      },
    );
    expect(run.end?.status).toBe('signal: killed');
    // Each member ends by itself, a moment before or after the others.
    await expect.poll(() => runs(Number(String(run.stdout)))).toBe(false);
  });

  test('List shows a process while it runs', async () => {
    const tag = `listed-${codec}`;
    const envs = { A: 'b' };
    const run = await transcribe(
      clients.process.start({ process: { ...sh('read x'), cwd: '/tmp', envs }, tag }),
      async (event, { pid }) => {
        if (event.case !== 'start') return;
        const listed = (await clients.process.list({})).processes.find((info) => info.pid === pid);
        expect(listed).toMatchObject({
          tag,
          config: { cmd: '/bin/sh', args: ['-c', 'read x'], cwd: '/tmp', envs },
        });
        await clients.process.closeStdin({ process: byPid(pid) });
      },
    );
    const { processes } = await clients.process.list({});
    expect(processes.some((info) => info.pid === run.pid)).toBe(false);
  });
});

describe('the end event', () => {
  test('is delayed by two seconds when a background child holds the pipes; the child lives on', async () => {
    const { process } = connectTo(daemon.url);
    const [go, written] = [join(daemon.scratch, 'go'), join(daemon.scratch, 'written')];
    const script = `(until [ -e ${go} ]; do sleep 0.02; done; echo late; touch ${written}; sleep 300) & echo $!`;
    const run = await transcribe(process.start({ process: sh(script) }));
    expect(run.end?.exitCode).toBe(0);
    const child = Number(String(run.stdout));
    writeFileSync(go, '');
    // SIGPIPE would have ended it, if its pipe had no reader.
    await until('the child has written', () => existsSync(written));
    expect(runs(child)).toBe(true);
    globalThis.process.kill(child, 'SIGKILL');
  });

  test('can be received for a while after the process has ended', async () => {
    const { process } = connectTo(daemon.url);
    const run = await transcribe(process.start({ process: sh('exit 7'), tag: 'gone' }));
    const again = await transcribe(process.connect({ process: byTag('gone') }));
    expect(again).toMatchObject({ pid: run.pid, end: { exitCode: 7 } });
    expect(await failure(() => process.sendSignal({ process: byPid(run.pid), signal: 15 }))).toEqual({
      code: Code.NotFound,
      message: `process with pid ${run.pid} not found`,
    });
  });

  test('comes from the deadline of Start, also when the client has disconnected', async () => {
    const { process } = connectTo(daemon.url);
    const abort = new AbortController();
    const stream = process.start(
      { process: sh('sleep 300'), tag: 'late' },
      { timeoutMs: 1500, signal: abort.signal },
    );
    await stream[Symbol.asyncIterator]().next();
    abort.abort();
    const run = await transcribe(process.connect({ process: byTag('late') }));
    expect(run.end?.status).toBe('signal: killed');
  });

  test('is replaced by deadline_exceeded, after the output, when the deadline passes', async () => {
    const body = Buffer.from(JSON.stringify({ process: sh('echo before; sleep 300') }));
    const envelope = Buffer.alloc(5);
    envelope.writeUInt32BE(body.length, 1);
    const response = await fetch(`${daemon.url}/process.Process/Start`, {
      method: 'POST',
      headers: { 'content-type': 'application/connect+json', 'connect-timeout-ms': '2000' },
      body: Buffer.concat([envelope, body]),
    });
    const text = await response.text();
    expect(text).toContain(Buffer.from('before\n').toString('base64'));
    expect(text).toContain('"code":"deadline_exceeded"');
    expect(text).not.toContain('"end"');
  });
});

describe('readers', () => {
  test('all clients get everything, also when one of them disconnects', async () => {
    const { process } = connectTo(daemon.url);
    const abort = new AbortController();
    const first = process.start(
      { process: sh('read go; seq 1 50000'), tag: 'many' },
      { signal: abort.signal },
    );
    await first[Symbol.asyncIterator]().next();
    const attached: Promise<void>[] = [];
    const readers = Array.from({ length: 5 }, () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      attached.push(promise);
      return transcribe(process.connect({ process: byTag('many') }), () => resolve());
    });
    await Promise.all(attached);
    abort.abort();
    await process.sendInput({
      process: byTag('many'),
      input: { input: { case: 'stdin', value: bytes('\n') } },
    });
    const wanted = Array.from({ length: 50000 }, (_, i) => `${i + 1}\n`).join('');
    for (const run of await Promise.all(readers)) expect(String(run.stdout) === wanted).toBe(true);
  });

  test('without readers the output is discarded and the process continues', async () => {
    const { process } = connectTo(daemon.url);
    const abort = new AbortController();
    const stream = process.start(
      { process: sh('head -c 20000000 /dev/zero; exit 5'), tag: 'drained' },
      { signal: abort.signal },
    );
    await stream[Symbol.asyncIterator]().next();
    abort.abort();
    expect((await transcribe(process.connect({ process: byTag('drained') }))).end?.exitCode).toBe(5);
  });

  test('a process that does not read its input blocks only its own writers', async () => {
    const { process } = connectTo(daemon.url);
    const abort = new AbortController();
    const stream = process.start({ process: sh('sleep 300'), tag: 'deaf' }, { signal: abort.signal });
    await stream[Symbol.asyncIterator]().next();
    const send = (timeoutMs?: number) =>
      process.sendInput(
        { process: byTag('deaf'), input: { input: { case: 'stdin', value: new Uint8Array(1 << 20) } } },
        timeoutMs ? { timeoutMs } : {},
      );
    await send();
    expect((await failure(() => send(300))).code).toBe(Code.DeadlineExceeded);
    await process.closeStdin({ process: byTag('deaf') });
    await process.sendSignal({ process: byTag('deaf'), signal: 9 });
    await transcribe(process.connect({ process: byTag('deaf') }));
  });

  test.each(['stdin', 'pty'] as const)('a full input queue uses no CPU: %s', async (kind) => {
    const { process } = connectTo(daemon.url);
    const tag = `full-${kind}`;
    const pty = kind === 'pty' ? { pty: {} } : {};
    const stream = process.start({ process: sh('sleep 300'), tag, ...pty });
    const events = stream[Symbol.asyncIterator]();
    await events.next();
    const input = { input: { case: kind, value: new Uint8Array(1 << 20).fill(10) } } as const;
    await process.sendInput({ process: byTag(tag), input });
    const looks = { asleep: 0, awake: 0 };
    const looking = setInterval(() => looks[isAsleep(daemon.pid) ? 'asleep' : 'awake']++, 20);
    const full = await failure(() => process.sendInput({ process: byTag(tag), input }, { timeoutMs: 1500 }));
    clearInterval(looking);
    expect(full.code).toBe(Code.DeadlineExceeded);
    // Who waits in a loop is awake each time, however little of the processor it gets.
    expect(looks.asleep).toBeGreaterThan(looks.awake);
    await process.sendSignal({ process: byTag(tag), signal: 9 });
    while (!(await events.next()).done);
  });

  test('keepalives arrive at the requested interval', async () => {
    const { process } = connectTo(daemon.url);
    const seen: number[] = [];
    const keptAlive = (seconds: number) => {
      const headers = { 'keepalive-ping-interval': String(seconds) };
      return transcribe(process.start({ process: sh('sleep 300') }, { headers }), async (event, { pid }) => {
        if (event.case !== 'keepalive') return;
        seen.push(seconds);
        if (seen.includes(4)) await process.sendSignal({ process: byPid(pid), signal: 9 });
      });
    };
    await Promise.all([keptAlive(1), keptAlive(4)]);
    // Those of each second come first, and a busy machine leaves out some; none come at another interval.
    const before = seen.indexOf(4);
    expect(before).toBeGreaterThanOrEqual(2);
    expect(before).toBeLessThanOrEqual(6);
  });
});

describe('bad input is refused', () => {
  const cases: [string, (clients: Clients) => Promise<unknown>, Code, string][] = [
    [
      'no process',
      ({ process }) => transcribe(process.start({})),
      Code.InvalidArgument,
      'process is missing',
    ],
    [
      'an empty command',
      ({ process }) => transcribe(process.start({ process: {} })),
      Code.InvalidArgument,
      'cmd is empty',
    ],
    [
      'a missing command',
      ({ process }) => transcribe(process.start({ process: { cmd: 'nope' } })),
      Code.NotFound,
      "cannot start 'nope': ENOENT: executable file not found in PATH",
    ],
    [
      'no executable',
      ({ process }) => transcribe(process.start({ process: { cmd: '/etc/passwd' } })),
      Code.InvalidArgument,
      "cannot start '/etc/passwd': EACCES: permission denied",
    ],
    [
      'a missing cwd',
      ({ process }) => transcribe(process.start({ process: { cmd: 'ls', cwd: '/nope' } })),
      Code.InvalidArgument,
      "cwd '/nope' does not exist",
    ],
    [
      'an unknown pid',
      ({ process }) => transcribe(process.connect({ process: byPid(7) })),
      Code.NotFound,
      'process with pid 7 not found',
    ],
    [
      'an unknown tag',
      ({ process }) => process.sendSignal({ process: byTag('x'), signal: 9 }),
      Code.NotFound,
      'process with tag x not found',
    ],
    [
      'no selector',
      ({ process }) => process.closeStdin({}),
      Code.InvalidArgument,
      'process selector is missing: name a pid or a tag',
    ],
    [
      'another home',
      ({ process }) => transcribe(process.start({ process: { cmd: 'ls', cwd: '~other' } })),
      Code.InvalidArgument,
      "cannot expand home of another user in path: '~other'",
    ],
    [
      'a NUL byte',
      ({ process }) => transcribe(process.start({ process: { cmd: 'ls', args: ['a\0b'] } })),
      Code.InvalidArgument,
      'cmd, args and envs cannot contain NUL bytes',
    ],
  ];
  test.each(cases)('%s', async (_name, call, code, message) => {
    expect(await failure(() => call(connectTo(daemon.url)))).toEqual({ code, message });
  });

  test('an unknown user', async () => {
    const { process } = connectTo(daemon.url);
    const headers = { authorization: `Basic ${Buffer.from('nobody-here:').toString('base64')}` };
    expect(await failure(() => transcribe(process.start({ process: sh('') }, { headers })))).toEqual({
      code: Code.Unauthenticated,
      message: "invalid username: 'nobody-here'",
    });
  });

  test('a cwd that the user cannot enter', async () => {
    const { process } = connectTo(daemon.url);
    const headers = { authorization: `Basic ${Buffer.from('daemon:').toString('base64')}` };
    const call = () => transcribe(process.start({ process: { ...sh(''), cwd: '/root' } }, { headers }));
    expect((await failure(call)).message).toBe(
      "cannot enter cwd '/root' as user 'daemon': EACCES: permission denied",
    );
  });

  test('stdin and CloseStdin for a process with a terminal', async () => {
    const { process } = connectTo(daemon.url);
    await transcribe(process.start({ process: sh('read x'), pty: {} }), async (event, { pid }) => {
      if (event.case !== 'start') return;
      const input = { input: { case: 'stdin', value: bytes('x') } } as const;
      expect(await failure(() => process.sendInput({ process: byPid(pid), input }))).toEqual({
        code: Code.FailedPrecondition,
        message: `process ${pid} has a terminal: send pty input`,
      });
      expect((await failure(() => process.closeStdin({ process: byPid(pid) }))).code).toBe(
        Code.FailedPrecondition,
      );
      await process.sendSignal({ process: byPid(pid), signal: 9 });
    });
  });
});

test('1,000 starts leave no descriptor, zombie or process', async () => {
  const { process } = connectTo(daemon.url, 'binary');
  // Sockets are not counted: they come and go with clients.
  const descriptors = () => openFiles(daemon.pid).filter((file) => !file.startsWith('socket:')).length;
  await transcribe(process.start({ process: { cmd: 'true' } }));
  const before = descriptors();
  for (let round = 0; round < 50; round++) {
    await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        transcribe(process.start({ process: { cmd: 'true' }, ...(i % 4 === 0 && { pty: {} }) })),
      ),
    );
  }
  await expect.poll(descriptors).toBeLessThanOrEqual(before);
  expect(childrenOf(daemon.pid)).toEqual([]);
});
