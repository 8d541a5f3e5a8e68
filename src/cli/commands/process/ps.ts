import type { ProcessInfo } from '../../../gen/process/process_pb.js';
import { formatBytes, formatSeconds } from '../../output/formats.ts';
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
  arguments: [],
  options: [
    { flags: '-a, --all', help: 'every process of the guest, as a tree' },
    {
      flags: '-u, --usage',
      help: 'CPU time, memory and tasks: of each with everything below it, or with --all of each alone',
    },
  ],
  json: '{"processes":[{"pid","tag","cmd","args","cwd"}]}; --all adds "parent","user","state", --usage "cpuSeconds","memoryBytes","tasks"',
  async run(call, { all = false, usage = false }) {
    const connection = await call.connection();
    const listed = await listProcesses(connection, { all, usage });
    const tree = orderAsTree(listed);
    const rows = tree.map(({ process, depth }) => ({ depth, ...rowOf(process, { all, usage }) }));
    const processes = rows.map(({ depth: _, ...row }) => row).sort((one, other) => one.pid - other.pid);
    await call.output.result({ processes }, () =>
      call.output.table(
        [
          { title: 'PID', align: 'right' },
          ...(all ? [{ title: 'USER' }] : []),
          ...(usage ? USAGE : []),
          { title: 'TAG' },
          { title: 'COMMAND' },
        ],
        rows.map(({ depth, pid, user, tag, cmd, args, ...used }) => [
          String(pid),
          ...(all ? [user ?? '-'] : []),
          ...(usage ? usageCells(used) : []),
          { style: 'cyan', text: tag ?? '-' },
          ' '.repeat(2 * Math.min(depth, DEEPEST)) + [cmd, ...args].map(quoted).join(' '),
        ]),
      ),
    );
    return 0;
  },
});

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
    ...{ pid, tag, cmd: config?.cmd ?? '', args: config?.args ?? [], cwd: config?.cwd ?? null },
    ...(all ? { parent, user, state } : { user: undefined }),
    ...(usage && used),
  };
}

/** Returns a word with the quotes that a shell needs. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
