import type { WebSocketConnection } from '../../http/websocket/connection.ts';
import type { ProcessEvent } from '../../services/process/output/events.ts';
import type { Reader } from '../../services/process/output/reader.ts';

/** Output is joined into messages of about this size, in bytes. */
const JOINED_BYTES = 64 * 1024;

/** Sends what a reader reads: output as binary messages, everything else as JSON. Resolves after the end of the process. */
export async function showOutput(feed: Reader, connection: WebSocketConnection): Promise<void> {
  connection.onStall(() => feed.stalled());
  for (let events = await feed.next(); events !== null; events = await feed.next())
    for (const message of messagesOf(events)) await connection.send(message);
}

function* messagesOf(events: readonly ProcessEvent[]): Generator<string | Buffer> {
  let pieces: Buffer[] = [];
  let length = 0;
  for (const event of events) {
    if (event.type === 'output') {
      pieces.push(event.bytes);
      length += event.bytes.length;
    }
    if (length > 0 && (event.type !== 'output' || length >= JOINED_BYTES)) {
      yield Buffer.concat(pieces);
      pieces = [];
      length = 0;
    }
    if (event.type !== 'output') yield JSON.stringify(jsonOf(event));
  }
  if (length > 0) yield Buffer.concat(pieces);
}

/** The offsets are those of the terminal's output. */
function jsonOf(event: Exclude<ProcessEvent, { type: 'output' }>): object {
  if (event.type === 'start')
    return { type: 'start', pid: event.pid, offset: event.offsets?.pty ?? 0, ...event.size };
  if (event.type === 'gap') return { type: 'gap', from: event.from.pty, to: event.to.pty };
  return { ...event, reason: event.reason.replaceAll(' ', '_') };
}
