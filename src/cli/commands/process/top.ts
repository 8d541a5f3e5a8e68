import { setTimeout as delay } from 'node:timers/promises';
import type { ProcessInfo } from '../../../gen/process/process_pb.js';
import type { Connection } from '../../connection/connection.ts';
import { lookAgain } from '../../connection/pauses.ts';
import { formatBytes } from '../../output/formats.ts';
import type { Piece } from '../../output/printer.ts';
import { FullScreen } from '../../terminal/full-screen.ts';
import { defineCommand } from '../spec/command.ts';
import { parseWaiting } from '../spec/parsers.ts';
import { cpuMicrosOf, listProcesses } from './listing.ts';

interface TopOptions {
  readonly all?: boolean;
  readonly watch?: boolean;
  readonly interval?: number;
}

const DEFAULT_INTERVAL_MS = 1000;
/** The most processes that are shown where there is no window to fill. */
const MOST_ROWS = 20;

export const topCommand = defineCommand<TopOptions>({
  name: 'top',
  summary: 'Show what processes use of CPU and memory',
  examples: ['envctl top', 'envctl top --watch --all'],
  details: [
    'Looks twice, and shows the share of one core between, of each process with everything below it.',
  ],
  arguments: [],
  options: [
    { flags: '-a, --all', help: 'every process of the guest, each alone' },
    { flags: '-w, --watch', help: 'go on' },
    { flags: '--interval <time>', help: 'between two looks; default: 1s', parse: parseWaiting },
  ],
  json: 'one line per look: {"processes":[{"pid","tag","user","cpuPercent","memoryBytes","tasks","cmd","args"}]}',
  async run(call, { all = false, watch = false, interval = DEFAULT_INTERVAL_MS }) {
    const connection = await call.connection();
    using screen =
      watch && call.output.isTerminal && !call.output.isJson
        ? new FullScreen(call.surroundings.stdout)
        : null;
    let before = await look(connection, all);
    do {
      await delay(interval);
      const now = await lookAgain(connection, () => look(connection, all), call.tellPaused);
      const processes = sharesOf(before, now);
      before = now;
      await call.output.result({ processes }, async () => {
        const rows = processes.slice(0, screen ? screen.rows - 1 : MOST_ROWS).map(rowOf);
        if (screen) screen.show(call.output.tableLines(COLUMNS, rows, { fits: true }));
        else await call.output.table(COLUMNS, rows, { fits: true });
      });
    } while (watch);
    return 0;
  },
});

const COLUMNS = [
  { title: 'PID', align: 'right' },
  { title: 'CPU %', align: 'right' },
  { title: 'MEMORY', align: 'right' },
  { title: 'TASKS', align: 'right' },
  { title: 'TAG' },
  { title: 'COMMAND' },
] as const;

function rowOf({
  pid,
  tag,
  cpuPercent,
  memoryBytes,
  tasks,
  cmd,
  args,
}: ReturnType<typeof sharesOf>[number]): Piece[] {
  return [
    String(pid),
    cpuPercent.toFixed(1),
    memoryBytes === null ? '-' : formatBytes(memoryBytes),
    tasks === null ? '-' : String(tasks),
    { style: 'cyan', text: tag ?? '-' },
    [cmd, ...args].join(' '),
  ];
}

interface Look {
  /** In milliseconds. */
  readonly at: number;
  readonly processes: readonly ProcessInfo[];
}

async function look(connection: Connection, all: boolean): Promise<Look> {
  const at = performance.now();
  return { at, processes: await listProcesses(connection, { all, usage: true }) };
}

/** What each process has used between two looks, the most first. */
function sharesOf(before: Look, now: Look) {
  const earlier = new Map(before.processes.map((process) => [process.pid, cpuMicrosOf(process)]));
  const elapsedMicros = (now.at - before.at) * 1000;
  const shares = now.processes.map((process) => {
    const { pid, tag = null, user = null, usage, config } = process;
    const used = cpuMicrosOf(process) - (earlier.get(pid) ?? 0);
    return {
      ...{ pid, tag, user },
      cpuPercent: Math.round((Math.max(0, used) / elapsedMicros) * 1000) / 10,
      memoryBytes: usage?.memoryBytes === undefined ? null : Number(usage.memoryBytes),
      tasks: usage?.tasks ?? null,
      ...{ cmd: config?.cmd ?? '', args: config?.args ?? [] },
    };
  });
  return shares.sort((a, b) => b.cpuPercent - a.cpuPercent || (b.memoryBytes ?? 0) - (a.memoryBytes ?? 0));
}
