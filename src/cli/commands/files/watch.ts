import { spawn } from 'node:child_process';
import { parseCount } from '../../../base/program/settings.ts';
import { EventType, type FilesystemEvent } from '../../../gen/filesystem/filesystem_pb.js';
import { remotePath } from '../../transfer/place.ts';
import { watchEvents } from '../../transfer/watch-events.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { PATH_ARGUMENT, shapeOf } from './ls.ts';

const NAMES: Readonly<Record<EventType, string>> = {
  [EventType.UNSPECIFIED]: 'rescan',
  [EventType.CREATE]: 'create',
  [EventType.WRITE]: 'write',
  [EventType.REMOVE]: 'remove',
  [EventType.RENAME]: 'rename',
  [EventType.CHMOD]: 'chmod',
};

interface WatchOptions {
  readonly recursive?: boolean;
  readonly entry?: boolean;
  readonly network?: boolean;
  readonly exec?: string;
  readonly count?: number;
}

export const watchCommand = defineCommand<WatchOptions>({
  name: 'watch',
  summary: 'Print a line for each change in a directory',
  examples: ['envctl watch --recursive :src', "envctl watch :src --exec 'make test'"],
  details: [
    'Each line has the event (create, write, remove, rename, chmod) and the name below the directory. `rescan` means that more has changed than the daemon could keep.',
    'The command of --exec is a line of shell, which runs on this machine, one at a time; it gets ENVCTL_EVENT and ENVCTL_NAME.',
  ],
  arguments: [PATH_ARGUMENT],
  options: [
    { flags: '-r, --recursive', help: 'with all directories below' },
    { flags: '--entry', help: 'with what is known of the file; only seen with --json' },
    { flags: '--network', help: 'allow network mounts, which are polled' },
    { flags: '--exec <command>', help: 'run this for each event' },
    { flags: '-n, --count <number>', help: 'leave after so many events', parse: parseCount },
  ],
  json: 'one line per event: {"event","name","entry"}; the first line is {"event":"start"}',
  async run(
    call,
    { recursive = false, entry = false, network = false, exec, count = Number.POSITIVE_INFINITY },
  ) {
    const connection = await call.connection();
    const path = remotePath(call.argument(0));
    const watched = { path, recursive, includeEntry: entry, allowNetworkMounts: network };
    let seen = 0;
    for await (const event of watchEvents(connection, watched)) {
      await tell(call, event);
      if (event === 'start') continue;
      if (exec !== undefined) await execute(call, exec, event);
      if (++seen >= count) break;
    }
    return 0;
  },
});

async function tell({ output }: Call, event: 'start' | FilesystemEvent): Promise<void> {
  if (event === 'start') {
    if (output.isJson) await output.json({ event: 'start' });
    else output.note({ style: 'dim', text: '[watching]' });
    return;
  }
  const { type, name, entry } = event;
  const told = NAMES[type] ?? `type ${type}`;
  await output.result({ event: told, name, entry: entry ? shapeOf(entry, entry.path) : null }, () =>
    output.line({ style: 'cyan', text: told.padEnd(8) }, name),
  );
}

/** Runs a line of shell on this machine. The name is passed in a variable, so that the shell never parses it. */
async function execute(call: Call, line: string, { type, name }: FilesystemEvent): Promise<void> {
  const env = { ...call.surroundings.env, ENVCTL_EVENT: NAMES[type], ENVCTL_NAME: name.replaceAll('\0', '') };
  const child = spawn('/bin/sh', ['-c', line], { env, stdio: ['ignore', 'inherit', 'inherit'] });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('exit', resolve).once('error', reject);
  });
  if (code !== 0) call.output.warn(`the command of --exec has failed (${code ?? 'by a signal'})`);
}
