import { printable } from '../../../output/printable.ts';
import { assignmentsIn } from '../parts/questions.tsx';
import { titleOf } from '../state/guest-snapshot.ts';
import type { ProcessMessage, StartMessage } from '../wire/messages.ts';
import type { Workspace } from '../workspace/workspace.ts';

const SIGNALS = [
  ...([
    ['15', 'TERM: end it'] as const,
    ['9', 'KILL: end it at once'] as const,
    ['2', 'INT: as ^C'] as const,
  ] as const),
  ...([
    ['1', 'HUP'],
    ['3', 'QUIT'],
    ['10', 'USR1'],
    ['12', 'USR2'],
    ['19', 'STOP'],
    ['18', 'CONT'],
  ] as const),
];

/** Asks which signal a process gets, and sends it. */
export async function askForSignal(
  { daemon, questions, notices }: Workspace,
  process: ProcessMessage,
): Promise<void> {
  const answer = await questions.ask({
    title: `Signal process ${process.pid}?`,
    text: printable(titleOf(process)),
    fields: [
      { name: 'signal', label: 'Signal', kind: 'choice', choices: SIGNALS },
      { name: 'tree', label: 'Everything below it, too', kind: 'check' },
    ],
    answers: [{ name: 'yes', label: 'Send it', isDanger: true }],
  });
  if (answer === null) return;
  const message = {
    process: { pid: process.pid },
    signal: Number(answer.values.signal),
    ...(answer.values.tree && { scope: 'SIGNAL_SCOPE_TREE' }),
  };
  await notices.attempt(() => daemon.unary('process.Process/SendSignal', message));
}

/** Asks for a command, and starts it in a tab. */
export async function askForProcess(workspace: Workspace): Promise<void> {
  const answer = await workspace.questions.ask({
    title: 'Start a process',
    fields: [
      { name: 'command', label: 'Command', hint: 'a line of the shell sh' },
      { name: 'cwd', label: 'Directory', hint: 'empty: the default of the daemon' },
      { name: 'user', label: 'User', hint: 'empty: the default of the daemon' },
      { name: 'tag', label: 'Tag' },
      { name: 'envs', label: 'Variables', kind: 'lines', hint: 'NAME=VALUE, one a line' },
      { name: 'pty', label: 'With a terminal', kind: 'check', value: 'on' },
    ],
    answers: [{ name: 'yes', label: 'Start' }],
  });
  const { command = '', user = '' } = answer?.values ?? {};
  if (command.trim() === '') return;
  workspace.showOutput({ start: startMessage(answer?.values ?? {}), user }, command);
}

function startMessage(values: Readonly<Record<string, string>>): StartMessage {
  const { command = '', cwd = '', tag = '', envs, pty } = values;
  return {
    process: {
      cmd: '/bin/sh',
      args: ['-c', command],
      envs: assignmentsIn(envs),
      ...(cwd !== '' && { cwd }),
    },
    ...(tag !== '' && { tag }),
    ...(pty && { pty: { size: { cols: 80, rows: 24 } } }),
  };
}
