import type { ProcessInfo } from '../../../gen/process/process_pb.js';
import { formatAge, formatBytes, formatSeconds } from '../../output/formats.ts';
import { quoted } from '../../output/quoted.ts';
import { orderAsTree } from '../../output/tree.ts';
import { defineCommand } from '../spec/command.ts';
import { cpuMicrosOf, listProcesses } from './listing.ts';

interface PsOptions {
  readonly all?: boolean;
  readonly usage?: boolean;
}

/** Deeper processes are not shown further to the right. */
const DEEPEST = 16;

export const psCommand = defineCommand<PsOptions>({
  name: 'ps',
  summary: 'List the processes that clients have started',
  examples: ['envctl ps', 'envctl ps --all --usage'],
  arguments: [],
  options: [
    { flags: '-a, --all', help: 'every process of the guest, as a tree' },
    {
      flags: '-u, --usage',
      help: 'CPU time, memory and tasks: of each with everything below it, or with --all of each alone',
    },
  ],
  json: '{"processes":[{"pid","tag","cmd","args","cwd","state","ageSeconds"}]}; --all adds "parent","user", --usage "cpuSeconds","memoryBytes","tasks"',
  async run(call, { all = false, usage = false }) {
    const connection = await call.connection();
    // The state and the age come with the usage.
    const listed = await listProcesses(connection, { all, usage: usage ? true : 'if told' });
    const tree = orderAsTree(listed);
    const rows = tree.map(({ process, depth }) => ({ depth, ...rowOf(process, { all, usage }) }));
    const processes = rows.map(({ depth: _, ...row }) => row).sort((one, other) => one.pid - other.pid);
    await call.output.result({ processes }, () =>
      call.output.table(
        [
          { title: 'PID', align: 'right' },
          ...(all ? [{ title: 'USER' }] : []),
          { title: 'AGE', align: 'right' },
          { title: 'STATE' },
          ...(usage ? USAGE : []),
          { title: 'TAG' },
          { title: 'COMMAND' },
        ],
        rows.map(({ depth, pid, user, tag, cmd, args, state, ageSeconds, ...used }) => [
          String(pid),
          ...(all ? [user ?? '-'] : []),
          ageSeconds === null ? '-' : formatAge(ageSeconds),
          STATES[state ?? ''] ?? state ?? '-',
          ...(usage ? usageCells(used) : []),
          { style: 'cyan', text: tag ?? '-' },
          ' '.repeat(2 * Math.min(depth, DEEPEST)) + [cmd, ...args].map(quoted).join(' '),
        ]),
        { fits: true },
      ),
    );
    return 0;
  },
});

/** The letters of ps(1). */
const STATES: Readonly<Record<string, string>> = {
  R: 'running',
  S: 'sleeping',
  D: 'waiting',
  I: 'idle',
  T: 'stopped',
  t: 'traced',
  Z: 'ended',
};

const USAGE = [
  { title: 'CPU', align: 'right' },
  { title: 'MEMORY', align: 'right' },
  { title: 'TASKS', align: 'right' },
] as const;

interface Usage {
  readonly cpuSeconds?: number | null;
  readonly memoryBytes?: number | null;
  readonly tasks?: number | null;
}

function usageCells({ cpuSeconds = null, memoryBytes = null, tasks = null }: Usage): string[] {
  return [
    cpuSeconds === null ? '-' : formatSeconds(cpuSeconds),
    memoryBytes === null ? '-' : formatBytes(memoryBytes),
    tasks === null ? '-' : String(tasks),
  ];
}

function rowOf(info: ProcessInfo, { all, usage }: Required<PsOptions>) {
  const { pid, tag = null, config, parent = null, user = null, state = null } = info;
  const used: Usage = {
    cpuSeconds: info.usage ? cpuMicrosOf(info) / 1e6 : null,
    memoryBytes: info.usage?.memoryBytes === undefined ? null : Number(info.usage.memoryBytes),
    tasks: info.usage?.tasks ?? null,
  };
  return {
    ...{ state, ageSeconds: info.ageMillis === undefined ? null : Number(info.ageMillis) / 1000 },
    ...{ pid, tag, cmd: config?.cmd ?? '', args: config?.args ?? [], cwd: config?.cwd ?? null },
    ...(all ? { parent, user } : { user: undefined }),
    ...(usage && used),
  };
}
