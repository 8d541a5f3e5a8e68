import { defineCommand } from '../spec/command.ts';

export const psCommand = defineCommand<object>({
  name: 'ps',
  summary: 'List the processes that clients have started',
  arguments: [],
  options: [],
  json: '{"processes":[{"pid","tag","cmd","args","cwd"}]}',
  async run(call) {
    const connection = await call.connection();
    const { processes } = await connection.call((options) => connection.processes.list({}, options));
    const found = processes
      .map(({ pid, tag, config }) => ({
        pid,
        tag: tag ?? null,
        cmd: config?.cmd ?? '',
        args: config?.args ?? [],
        cwd: config?.cwd ?? null,
      }))
      .sort((one, other) => one.pid - other.pid);
    await call.output.result({ processes: found }, () =>
      call.output.table(
        [{ title: 'PID', align: 'right' }, { title: 'TAG' }, { title: 'COMMAND' }],
        found.map(({ pid, tag, cmd, args }) => [
          String(pid),
          { style: 'cyan', text: tag ?? '-' },
          [cmd, ...args].map(quoted).join(' '),
        ]),
      ),
    );
    return 0;
  },
});

/** Returns a word with the quotes that a shell needs. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
