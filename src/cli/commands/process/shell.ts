import { usageError } from '../../output/failure.ts';
import { loginShell } from '../../process/login-shell.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { SANDBOX_ARGUMENT } from '../spec/sandbox-argument.ts';
import { runInPipes } from './run.ts';
import { EXITS_OF_PROCESSES, START_OPTIONS, type StartOptions, startRequest } from './start.ts';
import { ESCAPE_OPTION, runInTerminal } from './terminal.ts';

interface ShellOptions extends StartOptions {
  readonly shell?: string;
  readonly command?: string;
  readonly escape?: string;
}

export const shellCommand = defineCommand<ShellOptions>({
  name: 'shell',
  summary: 'Open a shell in a terminal',
  examples: ['envctl shell', 'envctl shell ID', "envctl shell -c 'cd src && make'"],
  details: [
    'Every key goes to the shell, also ^C and ^Z. If the connection is lost, the shell goes on, and envctl connects again.',
    'If standard input is no terminal, the shell has none either, and reads its lines from there.',
    'The escape key, ^] by default, begins a command to envctl: d or . detaches and leaves the shell running, k kills it, ? shows help, and the key itself sends it. `envctl attach` comes back to a shell.',
  ],
  arguments: [SANDBOX_ARGUMENT],
  options: [
    { flags: '--shell <program>', help: 'the program; default: the shell of the user' },
    { flags: '-c, --command <line>', help: 'run this line of shell, and leave' },
    ESCAPE_OPTION,
    ...START_OPTIONS,
  ],
  exits: EXITS_OF_PROCESSES,
  json: 'the events of `run`',
  async run(call, options) {
    const [sandbox] = call.arguments;
    if (sandbox !== undefined) call.chooseSandbox(sandbox);
    return openShell(call, options);
  },
});

/** Opens a shell, and connects it to the terminal or the input of this program. Returns the exit code. */
export async function openShell(call: Call, options: ShellOptions): Promise<number> {
  if (options.shell === '') throw usageError('--shell must name a program');
  const line = options.command === undefined ? [] : ['-c', options.command];
  const connection = await call.connection();
  const request = startRequest([options.shell ?? (await loginShell(connection)), '-l', ...line], options);
  // The end of a pipe cannot be told through a terminal: a shell that has just begun would not see a ^D.
  if (!call.surroundings.stdin.isTTY) return runInPipes(call, connection, { ...request, stdin: true });
  return runInTerminal(call, connection, request, options);
}
