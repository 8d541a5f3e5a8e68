import type { Connection } from '../../connection/connection.ts';
import { type Failure, usageError } from '../../output/failure.ts';
import { Follower } from '../../process/follow.ts';
import { ProcessInput } from '../../process/input.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { Interrupts } from './interrupts.ts';
import { chosenKeep, KEEP_OPTION, type KeepOptions } from './keep.ts';
import { chosenLimits, LIMIT_OPTIONS, type LimitOptions } from './limits.ts';
import { present } from './session.ts';
import {
  EXITS_OF_PROCESSES,
  explainStart,
  openStart,
  START_OPTIONS,
  type StartCall,
  type StartOptions,
  startRequest,
} from './start.ts';
import { ESCAPE_OPTION, runInTerminal } from './terminal.ts';

interface RunOptions extends StartOptions, LimitOptions, KeepOptions {
  readonly detach?: boolean;
  readonly tty?: boolean;
  readonly input?: boolean;
  readonly interactive?: boolean;
  readonly escape?: string;
}

export const runCommand = defineCommand<RunOptions>({
  name: 'run',
  alias: 'exec',
  summary: 'Run a command and stream its output',
  examples: [
    'envctl run ls -l /',
    'envctl run --tty vim notes.txt',
    "envctl run -e WORD=red sh -c 'echo $WORD | wc -c'",
    'envctl run --memory 512M --cpus 0.5 --pids 50 make',
    'envctl run --detach --keep 2h --tag build make',
    'envctl run --gateway http://gateway:49980 ID -- make test',
  ],
  details: [
    'The output comes byte for byte, each stream on its own. Standard input is passed on unless it is a terminal; then --tty does that. The command is not a line of shell: for one, run `sh -c LINE`.',
    'The first ^C sends SIGINT to the process and all of its group, the second one SIGKILL. If the connection is lost, envctl connects again and goes on where the output broke off.',
  ],
  arguments: [
    {
      name: 'command',
      help: 'the program and its arguments; behind `ID --` if only a gateway is named, without a sandbox',
      isVariadic: true,
    },
  ],
  options: [
    { flags: '-d, --detach', help: 'print the pid and leave; the process goes on' },
    {
      flags: '-i, --interactive',
      help: 'pass standard input on even if it is a terminal; with --detach, leave it open for `attach`',
    },
    { flags: '-t, --tty', help: 'give the process a terminal' },
    { flags: '--no-input', help: 'pass nothing on: standard input of the process is /dev/null' },
    ESCAPE_OPTION,
    ...START_OPTIONS,
    ...LIMIT_OPTIONS,
    KEEP_OPTION,
  ],
  exits: EXITS_OF_PROCESSES,
  json: 'one line per event: {"event":"started","pid"}, {"event":"stdout"|"stderr"|"pty","data":BASE64}, {"event":"gap","bytes"}, {"event":"lost","message"}, {"event":"paused","message"}, {"event":"resumed"}, {"event":"end","exitCode","exited","status","signal","usage"}; with --detach {"pid"}',
  passesThrough: true,
  async run(call, options) {
    const command = await commandOf(call);
    const connection = await call.connection();
    const { stdin } = call.surroundings;
    if (options.detach && options.tty) throw usageError('--detach and --tty exclude each other');
    const chosen = {
      ...(await chosenLimits(connection, options)),
      ...(await chosenKeep(connection, options)),
    };
    const start = { ...startRequest(command, options), ...chosen };
    if (options.tty) return runInTerminal(call, connection, start, options);
    const takesInput =
      options.interactive === true || (options.input !== false && !stdin.isTTY && !options.detach);
    const request = { ...start, stdin: takesInput };
    return options.detach ? detach(call, connection, request) : runInPipes(call, connection, request);
  },
});

/** Returns the program with its arguments. Chooses the sandbox that is named before `--`, if nothing else names one. */
async function commandOf(call: Call): Promise<readonly string[]> {
  const { gateway, sandbox } = await call.settings();
  if (gateway === undefined || sandbox !== undefined) return call.arguments;
  const [id = '', dashes, ...command] = call.arguments;
  if (dashes !== '--' || command.length === 0)
    throw usageError('--gateway needs a sandbox: `envctl run ID -- COMMAND`, or --sandbox');
  call.chooseSandbox(id);
  return command;
}

type PipedCall = StartCall & { readonly stdin: boolean };

function followerOf(connection: Connection, request: PipedCall): Follower {
  return new Follower(connection, { open: (stream) => openStart(connection, request, stream) });
}

/** Starts a process without a terminal, and passes its streams on. Returns the exit code. */
export async function runInPipes(call: Call, connection: Connection, request: PipedCall): Promise<number> {
  const follower = followerOf(connection, request);
  return explainStart(follower, request, () => stream(call, connection, follower, request.stdin));
}

async function detach(call: Call, connection: Connection, request: PipedCall): Promise<number> {
  const follower = followerOf(connection, request);
  return explainStart(follower, request, () => tellPid(call, follower));
}

async function tellPid(call: Call, follower: Follower): Promise<number> {
  for await (const event of follower.events()) {
    if (event.type !== 'started') continue;
    const { pid } = event;
    await call.output.result({ pid }, () => call.output.line(String(pid)));
    return 0;
  }
  return 0;
}

async function stream(
  call: Call,
  connection: Connection,
  follower: Follower,
  takesInput: boolean,
): Promise<number> {
  using interrupts = new Interrupts(connection, (text) => call.output.note(text), {
    isStarted: true,
  });
  let broken: Failure | null = null;
  const onStarted = (pid: number) => {
    interrupts.aimAt(pid);
    if (!takesInput) return;
    const input = new ProcessInput(connection, pid, 'stdin', (bytes) =>
      call.output.warn(`${bytes} bytes of input may be lost`),
    );
    input.pipe(call.surroundings.stdin as AsyncIterable<Buffer>).catch((error: Failure) => {
      broken = error;
      call.output.warn(`the input of the process broke off: ${error.message}`);
    });
  };
  const code = (await present(call, follower, { onStarted })) ?? 0;
  return broken && code === 0 ? 125 : code;
}
