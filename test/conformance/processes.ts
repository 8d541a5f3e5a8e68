import { strict as assert } from 'node:assert';
import { gzipSync } from 'node:zlib';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import { Signal, type StreamInputRequestSchema } from '../../src/gen/process/process_pb.js';
import { byPid, byTag } from '../support/clients/clients.ts';
import { given, section } from './cases.ts';
import { CODECS, type Daemon, JSON_BODY, refused, until } from './daemon.ts';
import { Running, sh } from './running.ts';

const MIB = 1024 * 1024;
const RETAINED_MS = 30_000;
const NO_PID = 4_194_305; // beyond the most that Linux gives
const SLEEP = { cmd: 'sleep', args: ['1000'], cwd: '/' };
const CAT = { cmd: 'cat', cwd: '/' };

type Selector = ReturnType<typeof byPid> | ReturnType<typeof byTag>;
type InputMessage = MessageInitShape<typeof StreamInputRequestSchema>;

const bytes = (text: string) => new TextEncoder().encode(text);
const stdin = (text: string) => ({ input: { case: 'stdin', value: bytes(text) } }) as const;
const pty = (text: string) => ({ input: { case: 'pty', value: bytes(text) } }) as const;
const first = (process: Selector): InputMessage => ({ event: { case: 'start', value: { process } } });
const data = (text: string): InputMessage => ({ event: { case: 'data', value: { input: stdin(text) } } });

async function* messages(...all: readonly InputMessage[]): AsyncGenerator<InputMessage> {
  yield* all;
}

const isAlive = async (daemon: Daemon, pid: number) =>
  (await daemon.shell(`kill -0 ${pid} 2>/dev/null && echo yes || echo no`)) === 'yes';

const kill = (daemon: Daemon, process: Selector, signal: Signal = Signal.SIGKILL) =>
  daemon.process.sendSignal({ process, signal });

/** Every call that names a process. */
const calls = ({ process }: Daemon): Readonly<Record<string, (selector: Selector) => Promise<unknown>>> => ({
  Connect: async (selector) => {
    for await (const _ of process.connect({ process: selector })) return;
  },
  Update: (selector) => process.update({ process: selector, pty: { size: { cols: 80, rows: 24 } } }),
  SendInput: (selector) => process.sendInput({ process: selector, input: stdin('x') }),
  StreamInput: (selector) => process.streamInput(messages(first(selector))),
  SendSignal: (selector) => process.sendSignal({ process: selector, signal: Signal.SIGTERM }),
  CloseStdin: (selector) => process.closeStdin({ process: selector }),
});

const attach = (daemon: Daemon, selector: Selector, headers: Record<string, string> = {}) =>
  Running.of(daemon.process.connect({ process: selector }, { headers }));

export const INPUT = section('6', 'Input and terminals', {
  'stdin is a pipe: SendInput, and CloseStdin for its end': async (daemon) => {
    for (const codec of CODECS) {
      const { process } = daemon.clients(codec);
      const { pid, ended } = await daemon.start({ process: CAT });
      for (const text of ['one ', 'two\0\xff'])
        await process.sendInput({
          process: byPid(pid),
          input: { input: { case: 'stdin', value: Buffer.from(text, 'latin1') } },
        });
      await process.closeStdin({ process: byPid(pid) });
      assert.equal((await ended).stdout.toString('latin1'), 'one two\0\xff');
    }
  },
  'CloseStdin again is success': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEP });
    for (let times = 0; times < 2; times += 1) await daemon.process.closeStdin({ process: byPid(pid) });
  },
  'stdin: false is /dev/null': async (daemon) => {
    const { ended } = await daemon.start({ process: sh('readlink /proc/self/fd/0; cat'), stdin: false });
    assert.equal(String((await ended).stdout), '/dev/null\n');
  },
  'input of the wrong kind, or to a closed stdin, is an error that says so': async (daemon) => {
    const plain = await daemon.start({ process: sh('echo up; cat; sleep 1000') });
    const terminal = await daemon.start({ process: SLEEP, pty: {} });
    const none = await daemon.start({ process: SLEEP, stdin: false });
    const send = (pid: number, input: ReturnType<typeof stdin> | ReturnType<typeof pty>) =>
      daemon.process.sendInput({ process: byPid(pid), input });
    const errors = [Code.FailedPrecondition, Code.InvalidArgument];
    await refused(send(plain.pid, pty('x')), errors, /pty|terminal/i);
    await refused(send(terminal.pid, stdin('x')), errors, /stdin|pty|terminal/i);
    await refused(send(none.pid, stdin('x')), errors, /stdin/i);
    await daemon.process.closeStdin({ process: byPid(plain.pid) });
    await refused(send(plain.pid, stdin('x')), errors, /stdin/i);
  },
  'input that the process has closed is an error, the first time too': async (daemon) => {
    const running = await daemon.start({ process: sh('exec <&-; echo closed; sleep 1000') });
    await running.wrote('closed');
    const errors = [Code.FailedPrecondition, Code.InvalidArgument];
    const call = { process: byPid(running.pid), input: stdin('x') };
    await refused(daemon.process.sendInput(call), errors, /stdin/i);
  },
  'CloseStdin on a terminal is refused': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEP, pty: {} });
    const errors = [Code.FailedPrecondition, Code.InvalidArgument];
    await refused(daemon.process.closeStdin({ process: byPid(pid) }), errors);
  },
  'a process that does not read blocks no other call': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEP });
    const gone = new AbortController();
    const input = { input: { case: 'stdin', value: new Uint8Array(4 * MIB) } } as const;
    const waiting = daemon.process.sendInput({ process: byPid(pid), input }, { signal: gone.signal });
    const over = waiting.then(
      () => null,
      () => null,
    );
    assert.equal(await daemon.shell('echo well'), 'well');
    assert.equal((await daemon.rest('GET', '/health')).status, 204);
    await kill(daemon, byPid(pid));
    await over;
    gone.abort();
  },
  'a terminal: input is echoed, output is pty': async (daemon) => {
    for (const size of [undefined, { cols: 100, rows: 30 }]) {
      const script = 'read line; echo "got $line"';
      const { pid, ended } = await daemon.start({
        process: sh(script),
        pty: size ? { size } : {},
        stdin: false,
      });
      await daemon.process.sendInput({ process: byPid(pid), input: pty('it\n') });
      const { pty: output, stdout } = await ended;
      assert.deepEqual([String(output), stdout.length], ['it\r\ngot it\r\n', 0]);
    }
  },
  'a terminal: its size, 80 × 24 where none is given': async (daemon) => {
    for (const [size, wanted] of [
      [{ cols: 132, rows: 50 }, '50 132'],
      [{ cols: 0, rows: 0 }, '24 80'],
    ] as const) {
      const { ended } = await daemon.start({ process: sh('stty size'), pty: { size } });
      assert.equal(String((await ended).pty), `${wanted}\r\n`);
    }
  },
  'a terminal: TERM is that of the request, and it is the controlling one': async (daemon) => {
    const process = {
      ...sh('echo "$TERM"; test -t 0 && test -t 1 && : >/dev/tty && echo own'),
      envs: { TERM: 'vt220' },
    };
    assert.equal(String((await (await daemon.start({ process, pty: {} })).ended).pty), 'vt220\r\nown\r\n');
  },
  'a terminal: 0x04 ends its input, 0x03 interrupts': async (daemon) => {
    const reading = await daemon.start({ process: CAT, pty: {} });
    await daemon.process.sendInput({ process: byPid(reading.pid), input: pty('\x04') });
    assert.equal((await reading.ended).end?.exitCode, 0);
    const sleeping = await daemon.start({ process: SLEEP, pty: {} });
    await daemon.process.sendInput({ process: byPid(sleeping.pid), input: pty('\x03') });
    assert.equal((await sleeping.ended).end?.status, 'signal: interrupt');
  },
  'Update resizes, and the program is told': async (daemon) => {
    const script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.1; done";
    for (const [index, codec] of CODECS.entries()) {
      const terminal = await daemon.start({ process: sh(script), pty: { size: { cols: 80, rows: 24 } } });
      await terminal.wrote('up');
      const size = { cols: 101 + index, rows: 41 };
      await daemon.clients(codec).process.update({ process: byPid(terminal.pid), pty: { size } });
      await terminal.wrote(`41 ${size.cols}`);
    }
  },
  'StreamInput writes all messages to the process of the first': async (daemon) => {
    for (const codec of CODECS) {
      const tag = `${daemon.run.tag}-${codec}`;
      const cat = await daemon.start({ process: CAT, tag });
      const { process } = daemon.clients(codec);
      const keepalive: InputMessage = { event: { case: 'keepalive', value: {} } };
      await process.streamInput(messages(first(byTag(tag)), data('one '), keepalive, data('two')));
      await daemon.process.closeStdin({ process: byPid(cat.pid) });
      assert.equal(String((await cat.ended).stdout), 'one two');
    }
  },
  'Connect-Timeout-Ms 0 is no limit of StreamInput, nor of a compressed call': async (daemon) => {
    const { pid, ended } = await daemon.start({ process: CAT });
    const headers = { 'connect-timeout-ms': '0' };
    await daemon.process.streamInput(messages(first(byPid(pid)), data('all')), { headers });
    const { status, body } = await daemon.rest('POST', '/process.Process/CloseStdin', {
      headers: { ...headers, ...JSON_BODY, 'content-encoding': 'gzip' },
      body: gzipSync(JSON.stringify({ process: { pid } })),
    });
    assert.equal(status, 200, String(body));
    assert.equal(String((await ended).stdout), 'all');
  },
  'StreamInput keeps its process when the tag is given to another': async (daemon) => {
    const tag = `${daemon.run.tag}-moving`;
    const cat = await daemon.start({ process: CAT, tag });
    const moved = Promise.withResolvers<void>();
    const call = daemon.process.streamInput(
      (async function* () {
        yield first(byTag(tag));
        yield data('one ');
        await moved.promise;
        yield data('two');
      })(),
    );
    await cat.wrote('one ');
    const other = await daemon.start({ process: CAT, tag });
    moved.resolve();
    await call;
    for (const { pid } of [cat, other]) await daemon.process.closeStdin({ process: byPid(pid) });
    assert.deepEqual([String((await cat.ended).stdout), String((await other.ended).stdout)], ['one two', '']);
  },
});

export const PROCESSES = section('6', 'Naming, attaching, signals', {
  'List tells pid, tag and command': async (daemon) => {
    const tag = `${daemon.run.tag}-listed`;
    const process = { cmd: 'sleep', args: ['1000'], cwd: '/', envs: { A: 'b' } };
    const { pid } = await daemon.start({ process, tag });
    for (const codec of CODECS) {
      const { processes } = await daemon.clients(codec).process.list({});
      const found = processes.find((each) => each.pid === pid);
      assert.deepEqual([found?.tag, found?.config?.cmd, found?.config?.args], [tag, 'sleep', ['1000']]);
      assert.deepEqual([found?.config?.cwd, found?.config?.envs], ['/', { A: 'b' }]);
    }
  },
  'an unknown pid or tag is not_found, in every call': async (daemon) => {
    const tag = 'conformance-nobody';
    for (const [name, call] of Object.entries(calls(daemon))) {
      const because = (error: Error) => Promise.reject(new Error(`${name}: ${error.message}`));
      await refused(call(byPid(NO_PID)), Code.NotFound, `process with pid ${NO_PID} not found`).catch(
        because,
      );
      await refused(call(byTag(tag)), Code.NotFound, `process with tag ${tag} not found`).catch(because);
    }
  },
  'a call without a selector is invalid_argument': async ({ process }) => {
    for await (const call of [
      () => process.update({}),
      () => process.sendInput({ input: stdin('x') }),
      () => process.sendSignal({ signal: Signal.SIGTERM }),
      () => process.closeStdin({}),
    ])
      await refused(call(), Code.InvalidArgument);
  },
  'Connect: start, then what comes from now on; each client gets everything': async (daemon) => {
    const cat = await daemon.start({ process: CAT });
    const send = (text: string) => daemon.process.sendInput({ process: byPid(cat.pid), input: stdin(text) });
    await send('before ');
    await cat.wrote('before ');
    const others = await Promise.all(CODECS.map(() => attach(daemon, byPid(cat.pid))));
    await send('after');
    await daemon.process.closeStdin({ process: byPid(cat.pid) });
    for (const other of others) {
      const { stdout, end, pid } = await other.ended;
      assert.deepEqual([pid, String(stdout), end?.status], [cat.pid, 'after', 'exit status 0']);
    }
    assert.equal(String((await cat.ended).stdout), 'before after');
  },
  'Connect: by tag': async (daemon) => {
    const tag = `${daemon.run.tag}-tagged`;
    const { pid } = await daemon.start({ process: SLEEP, tag });
    assert.equal((await attach(daemon, byTag(tag))).pid, pid);
  },
  'Connect: keepalives come as often as asked': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEP });
    await (await attach(daemon, byPid(pid), { 'keepalive-ping-interval': '1' })).told('keepalive');
  },
  'Connect: one client that goes takes nothing from the others': async (daemon) => {
    const cat = await daemon.start({ process: CAT });
    const gone = new AbortController();
    const stream = daemon.process.connect({ process: byPid(cat.pid) }, { signal: gone.signal });
    const other = await Running.of(stream);
    gone.abort();
    await refused(other.ended, Code.Canceled);
    await daemon.process.sendInput({ process: byPid(cat.pid), input: stdin('still') });
    await cat.wrote('still');
  },
  'Connect: after the end it is start and end': async (daemon) => {
    const { pid, ended } = await daemon.start({ process: sh('echo gone; exit 7') });
    await ended;
    const late = await attach(daemon, byPid(pid));
    assert.equal((await late.ended).end?.exitCode, 7);
    assert.deepEqual([late.kinds[0], late.kinds.at(-1)], ['start', 'end']);
  },
  'Connect: half a minute after the end it is not_found': given('slow')(async (daemon) => {
    const { pid, ended } = await daemon.start({ process: sh('exit 7') });
    await ended;
    await new Promise((resolve) => setTimeout(resolve, RETAINED_MS - 5000));
    assert.equal((await (await attach(daemon, byPid(pid))).ended).end?.exitCode, 7);
    await new Promise((resolve) => setTimeout(resolve, 10_000));
    await refused(attach(daemon, byPid(pid)), Code.NotFound, `process with pid ${pid} not found`);
  }),
  'SendSignal reaches the whole group': async (daemon) => {
    const running = await daemon.start({ process: sh('sleep 1000 & echo "child $!."; wait') });
    await running.wrote('.');
    const child = Number(/child (\d+)\./.exec(running.output)?.[1]);
    await kill(daemon, byPid(running.pid), Signal.SIGTERM);
    assert.equal((await running.ended).end?.status, 'signal: terminated');
    // Whoever inherits it may not reap it at once.
    const runs = `grep -q '^State:[[:space:]]*[RSDT]' /proc/${child}/status 2>/dev/null && echo yes || echo no`;
    await until(async () => (await daemon.shell(runs)) === 'no');
  },
  'SendSignal: SIGKILL is answered when the process is gone': async (daemon) => {
    for (let round = 0; round < 5; round += 1) {
      const { pid } = await daemon.start({ process: SLEEP });
      await kill(daemon, byPid(pid));
      assert.equal(await isAlive(daemon, pid), false);
    }
  },
  'SendSignal: an unknown name is an error that names it': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEP });
    const body = JSON.stringify({ process: { pid }, signal: 'SIGNAL_SIGNONE' });
    const answer = await daemon.rest('POST', '/process.Process/SendSignal', { headers: JSON_BODY, body });
    const { code, message } = JSON.parse(String(answer.body));
    assert.equal(code, 'invalid_argument');
    assert.match(message, /SIGNAL_SIGNONE/);
    assert.equal(await isAlive(daemon, pid), true);
  },
  'a process that traps SIGTERM goes on': async (daemon) => {
    const running = await daemon.start({
      process: sh("trap 'echo caught' TERM; echo up; while :; do sleep 0.1; done"),
    });
    await running.wrote('up');
    await kill(daemon, byPid(running.pid), Signal.SIGTERM);
    await running.wrote('caught');
  },
  'many processes at once, each with its own output': async (daemon) => {
    const numbers = Array.from({ length: 24 }, (_, i) => `${i}`);
    const ends = await daemon.atOnce(numbers, async (number) => {
      const { ended } = await daemon.start({ process: sh(`echo ${number}; exit ${number}`) });
      return ended;
    });
    assert.deepEqual(
      ends.map(({ stdout, end }) => `${String(stdout).trim()}=${end?.exitCode}`),
      numbers.map((number) => `${number}=${number}`),
    );
  },
});
