import type { ProcessSelector } from '../../../gen/process/process_pb.js';
import type { Connection } from '../../connection/connection.ts';
import { usageError } from '../../output/failure.ts';
import { Follower } from '../../process/follow.ts';
import { ProcessInput } from '../../process/input.ts';
import { orKept } from '../../process/kept-output.ts';
import { findProcess } from '../../process/selector.ts';
import { exitCodeOf, parseSignal } from '../../process/signals.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import type { ArgumentSpec } from '../spec/description.ts';
import { Interrupts } from './interrupts.ts';
import { present, tellState } from './session.ts';
import { EXITS_OF_PROCESSES } from './start.ts';
import { converse, ESCAPE_OPTION, escapeKeyOf } from './terminal.ts';

const FROM_START = { stdout: 0n, stderr: 0n, pty: 0n };

export const PROCESS_ARGUMENT: ArgumentSpec = {
  name: 'process',
  help: 'a pid, or a tag; tag:7 is the tag 7',
  completes: 'process',
};

/**
 * Follows a process that runs or has just ended. If `isWhole` is true, it begins with the first byte that the daemon keeps. With
 * `screen`, the process must have a terminal, whose screen is shown.
 */
export function followerOf(
  call: Call,
  connection: Connection,
  process: ProcessSelector,
  isWhole: boolean,
  { keepaliveS, screen = false }: { readonly keepaliveS?: number; readonly screen?: boolean } = {},
): Follower {
  const resume = isWhole ? { resumeFrom: FROM_START } : {};
  return new Follower(connection, {
    ...{ signal: call.leaving, screen },
    ...(keepaliveS !== undefined && { keepaliveS }),
    open: (stream) => connection.processes.connect({ process, screen, ...resume }, stream),
  });
}

export const attachCommand = defineCommand<{
  readonly new?: boolean;
  readonly input?: boolean;
  readonly escape?: string;
}>({
  name: 'attach',
  summary: 'Attach to a running process',
  examples: ['envctl attach 1234', 'envctl attach --new build'],
  details: [
    'Shows the output that the daemon keeps, then what comes. A process with a terminal is asked to draw its screen again, and gets what is typed; other processes get standard input unless it is a terminal. Several clients can be attached to one process.',
  ],
  arguments: [PROCESS_ARGUMENT],
  options: [
    { flags: '--new', help: 'show only what comes from now on' },
    { flags: '--no-input', help: 'only look: pass nothing on' },
    ESCAPE_OPTION,
  ],
  exits: EXITS_OF_PROCESSES,
  json: 'the events of `run`',
  async run(call, options) {
    const connection = await call.connection();
    const key = escapeKeyOf(options.escape);
    const process = await findProcess(connection, call.argument(0));
    const isWhole = options.new !== true;
    const isActive = options.input !== false;
    const screen = isActive && (await hasTerminal(call, connection, process));
    const follower = followerOf(call, connection, process, isWhole, { screen });
    if (!isActive) return (await present(call, follower)) ?? 0;
    if (screen) return converse(call, connection, follower, key);
    using interrupts = new Interrupts(connection, (text) => call.output.note(text), {
      isStarted: false,
    });
    const onStarted = (pid: number) => {
      interrupts.aimAt(pid);
      const { stdin } = call.surroundings;
      if (stdin.isTTY) return;
      const input = new ProcessInput(connection, pid, 'stdin', (bytes) =>
        call.output.warn(`${bytes} bytes of input may be lost`),
      );
      input.pipe(stdin as AsyncIterable<Buffer>).catch((error: Error) => call.output.warn(error.message));
    };
    return (await present(call, follower, { onStarted })) ?? 0;
  },
});

/**
 * Returns whether a process has a terminal. Sets its size to that of the local one, because only a process with a terminal
 * accepts a size.
 */
async function hasTerminal(
  call: Call,
  { processes, unary }: Connection,
  process: ProcessSelector,
): Promise<boolean> {
  const { columns: cols = 80, rows = 24 } = call.surroundings.stdout as { columns?: number; rows?: number };
  return processes.update({ process, pty: { size: { cols, rows } } }, unary).then(
    () => true,
    () => false,
  );
}

export const waitCommand = defineCommand<object>({
  name: 'wait',
  summary: 'Wait for the end of a process, and exit as it does',
  examples: ['envctl wait build'],
  arguments: [PROCESS_ARGUMENT],
  options: [],
  exits: EXITS_OF_PROCESSES,
  json: '{"pid","exitCode"}',
  async run(call) {
    const connection = await call.connection();
    const process = await findProcess(connection, call.argument(0));
    const follower = followerOf(call, connection, process, false);
    let pid = follower.pid;
    for await (const event of orKept(follower.events(), connection, call.argument(0))) {
      if (event.type === 'started') pid = event.pid;
      if (event.type !== 'gap' || follower.pid !== null) tellState(call, event);
      if (event.type !== 'end') continue;
      const exitCode = exitCodeOf(event.end);
      await call.output.result({ pid, exitCode }, async () => {});
      return exitCode;
    }
    return 0;
  },
});

export const killCommand = defineCommand<{ readonly signal?: number; readonly tree?: boolean }>({
  name: 'kill',
  summary: 'Send a signal to processes',
  examples: ['envctl kill build', 'envctl kill -s INT 1234', 'envctl kill -9 --tree build'],
  details: ['The signal reaches the whole process group. Daemons other than envd know TERM and KILL only.'],
  arguments: [{ ...PROCESS_ARGUMENT, isVariadic: true }],
  options: [
    {
      flags: '-s, --signal <signal>',
      help: 'TERM (the default), KILL, INT, a number',
      parse: parseSignal,
      completes: 'signal',
    },
    { flags: '--tree', help: 'reach every descendant, too, where the daemon can do that' },
  ],
  json: '{"signaled":[PROCESS]}',
  async run(call, { signal: named, tree = false }) {
    const connection = await call.connection();
    const [first = '', ...others] = call.arguments;
    // The parser takes `-9` for a negative number, which is an argument.
    const isNumbered = /^-\d{1,2}$/.test(first);
    if (isNumbered && (named !== undefined || others.length === 0))
      throw usageError('give one signal, and the processes that get it');
    const signal = isNumbered ? parseSignal(first.slice(1)) : (named ?? 15);
    const names = isNumbered ? others : call.arguments;
    // Nothing is signaled if one of the names is wrong.
    for (const process of await Promise.all(names.map((name) => findProcess(connection, name)))) {
      await connection.call((options) =>
        connection.processes.sendSignal({ process, signal, scope: tree ? 1 : 0 }, options),
      );
    }
    await call.output.result({ signaled: names }, async () => {});
    return 0;
  },
});
