import type { Connection } from '../../connection/connection.ts';
import { counted } from '../../output/formats.ts';
import type { FollowEvent, Follower } from '../../process/follow.ts';
import { exitCodeOf } from '../../process/signals.ts';
import type { Call } from '../spec/call.ts';

/** These functions say how a process is shown. */
export interface Presentation {
  /** Is called once, when the process runs or was found. */
  onStarted?(pid: number): void;
  /** Is called with output before it is shown. */
  onOutput?(data: Uint8Array): void;
}

/**
 * Prints the output of a process, byte for byte, until the process ends. Returns its exit code, or null if the user left it
 * before. With `--json`, prints each event as one line.
 */
export async function present(
  call: Call,
  follower: Pick<Follower, 'events'>,
  { onStarted, onOutput }: Presentation = {},
): Promise<number | null> {
  let isKnown = false;
  for await (const event of follower.events()) {
    if (event.type === 'started' && !isKnown) {
      isKnown = true;
      onStarted?.(event.pid);
    }
    if (event.type === 'output') onOutput?.(event.data);
    if (call.output.isJson) await printEvent(call, event);
    else await showEvent(call, event);
    if (event.type === 'end') return exitCodeOf(event.end);
  }
  return null;
}

async function showEvent(call: Call, event: FollowEvent): Promise<void> {
  if (event.type === 'output')
    await call.output.raw(event.data, event.kind === 'stderr' ? 'stderr' : 'stdout');
  else tellState(call, event);
}

/** Tells what has become of the connection to a process. */
export function tellState(call: Call, event: FollowEvent): void {
  const say = (text: string) => call.output.note({ style: 'dim', text: `[${text}]` });
  if (event.type === 'lost') say(`${event.failure.message}; trying again`);
  else if (event.type === 'paused') call.tellPaused();
  else if (event.type === 'resumed') say('connected again, nothing was lost');
  else if (event.type === 'gap')
    say(
      event.bytes === null
        ? 'output may be missing here'
        : `${counted(event.bytes, 'byte')} of output are not kept any more`,
    );
}

async function printEvent({ output }: Call, event: FollowEvent): Promise<void> {
  switch (event.type) {
    case 'started':
      return output.json({ event: 'started', pid: event.pid });
    case 'output':
      return output.json({ event: event.kind, data: Buffer.from(event.data).toString('base64') });
    case 'gap':
      return output.json({ event: 'gap', bytes: event.bytes });
    case 'lost':
      return output.json({ event: 'lost', message: event.failure.message });
    case 'paused':
      return output.json({ event: 'paused', message: event.failure.message });
    case 'resumed':
      return output.json({ event: 'resumed' });
    case 'end':
      return output.json(endOf(event.end));
    case 'idle':
      return;
  }
}

function endOf(end: Extract<FollowEvent, { type: 'end' }>['end']) {
  const { usage } = end;
  return {
    event: 'end',
    exitCode: exitCodeOf(end),
    exited: end.exited,
    status: end.status,
    signal: end.signal ?? null,
    usage: usage
      ? {
          userMicros: Number(usage.userMicros),
          systemMicros: Number(usage.systemMicros),
          peakMemoryBytes: usage.peakMemoryBytes === undefined ? null : Number(usage.peakMemoryBytes),
          ...(usage.refusedTasks !== undefined && { refusedTasks: Number(usage.refusedTasks) }),
        }
      : null,
  };
}

/**
 * Sends a signal by its number to the group of a process. If the daemon knows only SIGTERM and SIGKILL, it gets SIGTERM for
 * all others.
 */
export async function sendSignal(connection: Connection, pid: number, signal: number): Promise<void> {
  const process = { selector: { case: 'pid', value: pid } } as const;
  const send = (number: number) =>
    connection.processes.sendSignal({ process, signal: number }, connection.unary);
  await send(signal).catch((error: unknown) => {
    if (signal === 9 || signal === 15) throw error;
    return send(15);
  });
}
