import type { ProcessEvent } from '../../gen/process/process_pb.js';

/** The output of a process by stream, and its end event. */
export interface Transcript {
  pid: number;
  stdout: Buffer;
  stderr: Buffer;
  pty: Buffer;
  end: { exitCode: number; exited: boolean; status: string; error: string | undefined } | null;
}

/** Reads a stream of process events to its end. Throws as the stream does. */
export async function transcribe(
  messages: AsyncIterable<{ event?: ProcessEvent | undefined }>,
  onEvent: (event: ProcessEvent['event'], soFar: Transcript) => unknown = () => {},
): Promise<Transcript> {
  const parts: Record<'stdout' | 'stderr' | 'pty', Uint8Array[]> = { stdout: [], stderr: [], pty: [] };
  const result: Transcript = {
    pid: 0,
    stdout: Buffer.alloc(0),
    stderr: Buffer.alloc(0),
    pty: Buffer.alloc(0),
    end: null,
  };
  for await (const { event: message } of messages) {
    const event = message?.event;
    if (!event?.case) continue;
    if (event.case === 'start') result.pid = event.value.pid;
    if (event.case === 'data' && event.value.output.case)
      parts[event.value.output.case].push(event.value.output.value);
    if (event.case === 'end') {
      const { exitCode, exited, status, error } = event.value;
      result.end = { exitCode, exited, status, error };
    }
    await onEvent(event, result);
  }
  for (const stream of ['stdout', 'stderr', 'pty'] as const) result[stream] = Buffer.concat(parts[stream]);
  return result;
}

export const byPid = (pid: number) => ({ selector: { case: 'pid', value: pid } }) as const;
export const byTag = (tag: string) => ({ selector: { case: 'tag', value: tag } }) as const;
