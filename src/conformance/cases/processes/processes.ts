import { strict as assert } from 'node:assert';
import { Code } from '@connectrpc/connect';
import { Signal } from '../../../gen/process/process_pb.js';
import { given, section } from '../../suite/cases.ts';
import { CODECS, JSON_BODY, refused, type TestedDaemon, until } from '../../suite/daemon.ts';
import { Running, sh } from '../../suite/running.ts';
import { byPid, byTag } from '../../suite/transcript.ts';
import {
  CAT,
  inputMessages,
  killWith,
  type ProcessName,
  SLEEPING,
  startMessage,
  stdinBytes,
} from './process-calls.ts';

const RETAINED_MS = 30_000;
const NO_PID = 4_194_305; // beyond the most that Linux gives
const isAlive = async (daemon: TestedDaemon, pid: number) =>
  (await daemon.shell(`kill -0 ${pid} 2>/dev/null && echo yes || echo no`)) === 'yes';

/** Every call that names a process. */
const calls = ({
  process,
}: TestedDaemon): Readonly<Record<string, (selector: ProcessName) => Promise<unknown>>> => ({
  Connect: async (selector) => {
    for await (const _ of process.connect({ process: selector })) return;
  },
  Update: (selector) => process.update({ process: selector, pty: { size: { cols: 80, rows: 24 } } }),
  SendInput: (selector) => process.sendInput({ process: selector, input: stdinBytes('x') }),
  StreamInput: (selector) => process.streamInput(inputMessages(startMessage(selector))),
  SendSignal: (selector) => process.sendSignal({ process: selector, signal: Signal.SIGTERM }),
  CloseStdin: (selector) => process.closeStdin({ process: selector }),
});

const attach = (daemon: TestedDaemon, selector: ProcessName, headers: Record<string, string> = {}) =>
  Running.of(daemon.process.connect({ process: selector }, { headers }));

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
      () => process.sendInput({ input: stdinBytes('x') }),
      () => process.sendSignal({ signal: Signal.SIGTERM }),
      () => process.closeStdin({}),
    ])
      await refused(call(), Code.InvalidArgument);
  },
  'Connect: start, then what comes from now on; each client gets everything': async (daemon) => {
    const cat = await daemon.start({ process: CAT });
    const send = (text: string) =>
      daemon.process.sendInput({ process: byPid(cat.pid), input: stdinBytes(text) });
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
    const { pid } = await daemon.start({ process: SLEEPING, tag });
    assert.equal((await attach(daemon, byTag(tag))).pid, pid);
  },
  'Connect: keepalives come as often as asked': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEPING });
    await (await attach(daemon, byPid(pid), { 'keepalive-ping-interval': '1' })).told('keepalive');
  },
  'Connect: one client that goes takes nothing from the others': async (daemon) => {
    const cat = await daemon.start({ process: CAT });
    const gone = new AbortController();
    const stream = daemon.process.connect({ process: byPid(cat.pid) }, { signal: gone.signal });
    const other = await Running.of(stream);
    gone.abort();
    await refused(other.ended, Code.Canceled);
    await daemon.process.sendInput({ process: byPid(cat.pid), input: stdinBytes('still') });
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
    await killWith(daemon, byPid(running.pid), Signal.SIGTERM);
    assert.equal((await running.ended).end?.status, 'signal: terminated');
    // Whoever inherits it may not reap it at once.
    const runs = `grep -q '^State:[[:space:]]*[RSDT]' /proc/${child}/status 2>/dev/null && echo yes || echo no`;
    await until(async () => (await daemon.shell(runs)) === 'no');
  },
  'SendSignal: SIGKILL is answered when the process is gone': async (daemon) => {
    for (let round = 0; round < 5; round += 1) {
      const { pid } = await daemon.start({ process: SLEEPING });
      await killWith(daemon, byPid(pid));
      assert.equal(await isAlive(daemon, pid), false);
    }
  },
  'SendSignal: an unknown name is an error that names it': async (daemon) => {
    const { pid } = await daemon.start({ process: SLEEPING });
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
    await killWith(daemon, byPid(running.pid), Signal.SIGTERM);
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
