import { strict as assert } from 'node:assert';
import { gzipSync } from 'node:zlib';
import { Code } from '@connectrpc/connect';
import { section } from '../../suite/cases.ts';
import { CODECS, JSON_BODY, refused } from '../../suite/daemon.ts';
import { sh } from '../../suite/running.ts';
import { byPid, byTag } from '../../suite/transcript.ts';
import {
  CAT,
  dataMessage,
  type InputMessage,
  inputMessages,
  killWith,
  ptyBytes,
  SLEEPING,
  startMessage,
  stdinBytes,
} from './process-calls.ts';

const MIB = 1024 * 1024;

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
    const { pid } = await daemon.start({ process: SLEEPING });
    for (let times = 0; times < 2; times += 1) await daemon.process.closeStdin({ process: byPid(pid) });
  },
  'stdin: false is /dev/null': async (daemon) => {
    const { ended } = await daemon.start({ process: sh('readlink /proc/self/fd/0; cat'), stdin: false });
    assert.equal(String((await ended).stdout), '/dev/null\n');
  },
  'input of the wrong kind, or to a closed stdin, is an error that says so': async (daemon) => {
    const plain = await daemon.start({ process: sh('echo up; cat; sleep 1000') });
    const terminal = await daemon.start({ process: SLEEPING, pty: {} });
    const none = await daemon.start({ process: SLEEPING, stdin: false });
    const send = (pid: number, input: ReturnType<typeof stdinBytes> | ReturnType<typeof ptyBytes>) =>
      daemon.process.sendInput({ process: byPid(pid), input });
    const errors = [Code.FailedPrecondition, Code.InvalidArgument];
    await refused(send(plain.pid, ptyBytes('x')), errors, /pty|terminal/i);
    await refused(send(terminal.pid, stdinBytes('x')), errors, /stdin|pty|terminal/i);
    await refused(send(none.pid, stdinBytes('x')), errors, /stdin/i);
    await daemon.process.closeStdin({ process: byPid(plain.pid) });
    await refused(send(plain.pid, stdinBytes('x')), errors, /stdin/i);
  },
  'input that the process has closed is an error, the first time too': async (daemon) => {
    const running = await daemon.start({ process: sh('exec <&-; echo closed; sleep 1000') });
    await running.wrote('closed');
    const errors = [Code.FailedPrecondition, Code.InvalidArgument];
    const call = { process: byPid(running.pid), input: stdinBytes('x') };
    await refused(daemon.process.sendInput(call), errors, /stdin/i);
  },
  'CloseStdin on a terminal is refused': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEPING, pty: {} });
    const errors = [Code.FailedPrecondition, Code.InvalidArgument];
    await refused(daemon.process.closeStdin({ process: byPid(pid) }), errors);
  },
  'a process that does not read blocks no other call': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEPING });
    const gone = new AbortController();
    const input = { input: { case: 'stdin', value: new Uint8Array(4 * MIB) } } as const;
    const waiting = daemon.process.sendInput({ process: byPid(pid), input }, { signal: gone.signal });
    const over = waiting.then(
      () => null,
      () => null,
    );
    assert.equal(await daemon.shell('echo well'), 'well');
    assert.equal((await daemon.rest('GET', '/health')).status, 204);
    await killWith(daemon, byPid(pid));
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
      await daemon.process.sendInput({ process: byPid(pid), input: ptyBytes('it\n') });
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
    await daemon.process.sendInput({ process: byPid(reading.pid), input: ptyBytes('\x04') });
    assert.equal((await reading.ended).end?.exitCode, 0);
    const sleeping = await daemon.start({ process: SLEEPING, pty: {} });
    await daemon.process.sendInput({ process: byPid(sleeping.pid), input: ptyBytes('\x03') });
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
      await process.streamInput(
        inputMessages(startMessage(byTag(tag)), dataMessage('one '), keepalive, dataMessage('two')),
      );
      await daemon.process.closeStdin({ process: byPid(cat.pid) });
      assert.equal(String((await cat.ended).stdout), 'one two');
    }
  },
  'Connect-Timeout-Ms 0 is no limit of StreamInput, nor of a compressed call': async (daemon) => {
    const { pid, ended } = await daemon.start({ process: CAT });
    const headers = { 'connect-timeout-ms': '0' };
    await daemon.process.streamInput(inputMessages(startMessage(byPid(pid)), dataMessage('all')), {
      headers,
    });
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
        yield startMessage(byTag(tag));
        yield dataMessage('one ');
        await moved.promise;
        yield dataMessage('two');
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
