import type { Connection } from '../../connection/connection.ts';
import { usageError } from '../../output/failure.ts';
import { Follower } from '../../process/follow.ts';
import { ProcessInput } from '../../process/input.ts';
import { selectPid } from '../../process/selector.ts';
import { controlKey, EscapeKey, nameOfKey } from '../../terminal/escape.ts';
import { LocalTerminal } from '../../terminal/local-terminal.ts';
import type { Call } from '../spec/call.ts';
import type { OptionSpec } from '../spec/description.ts';
import { present, sendSignal } from './session.ts';
import { explainStart, openStart, type StartCall } from './start.ts';

const DEFAULT_ESCAPE = '^]';
const SIGKILL = 9;

export const ESCAPE_OPTION: OptionSpec = {
  flags: '--escape <key>',
  help: 'the key that begins a command to envctl, such as ^A; default: ^]; none: no key',
};

/** Returns the escape key that an option names, or null for none. Throws a `Failure` with the reason `usage`. */
export function escapeKeyOf(option: string | undefined): number | null {
  if (option === 'none') return null;
  const key = controlKey(option ?? DEFAULT_ESCAPE);
  if (key === null) throw usageError(`--escape must be a control key such as ^A, or none; it is '${option}'`);
  return key;
}

/** Starts a process with a terminal, and connects that to the terminal of this program. Returns the exit code. */
export async function runInTerminal(
  call: Call,
  connection: Connection,
  request: StartCall,
  options: { readonly escape?: string },
): Promise<number> {
  const key = escapeKeyOf(options.escape);
  const { stdout } = call.surroundings;
  const { columns: cols = 80, rows = 24 } = stdout as { columns?: number; rows?: number };
  const { TERM } = call.surroundings.env;
  const envs = { ...(TERM && { TERM }), ...request.process.envs };
  const follower = new Follower(connection, {
    signal: call.leaving,
    open: (stream) => {
      const process = { ...request.process, envs };
      return openStart(connection, { ...request, process, pty: { size: { cols, rows } } }, stream);
    },
  });
  return explainStart(follower, request, () => converse(call, connection, follower, key));
}

/** Connects a process with a terminal to the terminal of this program, or to its input and output if it has none. */
export async function converse(
  call: Call,
  connection: Connection,
  follower: Follower,
  key: number | null,
): Promise<number> {
  const { stdin, stdout } = call.surroundings;
  const isRaw = stdin.isTTY === true && stdout.isTTY === true;
  if (isRaw && key !== null) call.output.note({ style: 'dim', text: `[${helpOn(key)}]` });
  using terminal = isRaw ? new LocalTerminal(stdin, stdout) : null;
  using _lines = isRaw ? call.output.inRawTerminal() : null;
  const onStarted = (pid: number) => {
    terminal?.onResize((size) => {
      const process = selectPid(pid);
      void connection.processes.update({ process, pty: { size } }, connection.unary).catch(() => {});
    });
    readKeyboard(call, connection, pid, isRaw ? key : null);
  };
  const code = await present(call, follower, { onStarted, onOutput: (data) => terminal?.follow(data) });
  if (code === null && isRaw)
    call.output.note({ style: 'dim', text: `[detached; the process goes on as ${follower.pid}]` });
  return code ?? 0;
}

function helpOn(key: number): string {
  const name = nameOfKey(key);
  return `${name} d detaches, ${name} k kills, ${name} ${name} sends ${name}`;
}

/** Sends the typed input, or the input of a pipe, to the terminal of the process. */
function readKeyboard(call: Call, connection: Connection, pid: number, key: number | null): void {
  const { stdin } = call.surroundings;
  const { output } = call;
  const say = (text: string) => output.note({ style: 'dim', text: `[${text}]` });
  const input = new ProcessInput(connection, pid, 'pty', (bytes) =>
    say(`${bytes} bytes of input may be lost`),
  );
  const keys = key === null ? null : new EscapeKey(key);
  // A terminal has no end of input, so the end of a pipe is sent as ^D, as a user would type it.
  stdin.once('end', () => input.type(Buffer.of(4)));
  stdin.on('data', (piece: Buffer | string) => {
    const typed = keys?.read(Buffer.from(piece)) ?? { bytes: Buffer.from(piece), action: null };
    if (!input.type(typed.bytes)) say('the process does not read; what was typed is dropped');
    if (typed.action === 'detach') call.leave();
    if (typed.action === 'help' && key !== null) say(helpOn(key));
    if (typed.action === 'kill')
      sendSignal(connection, pid, SIGKILL).catch((error: Error) =>
        say(`it could not be killed: ${error.message}`),
      );
  });
}
