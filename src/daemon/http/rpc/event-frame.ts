import { EndReasonSchema } from '../../../gen/process/process_pb.js';
import type { EndEvent, ProcessEvent } from '../../services/process/output/events.ts';
import { frameOf } from '../connect/codec.ts';
import { REASON } from './process-messages.ts';

/**
 * The frame of the first or last event of a process in JSON, encoded by hand: every start has both, and the general
 * encoder takes 15 µs for each. Null for other events. StartResponse and ConnectResponse have the same encoding.
 */
export function jsonFrame(event: ProcessEvent): Buffer | null {
  if (event.type === 'end') return frame({ end: endValue(event) });
  if (event.type === 'start' && event.offsets === null) return frame({ start: { pid: event.pid } });
  return null;
}

function frame(event: object): Buffer {
  return frameOf(0, Buffer.from(JSON.stringify({ event })));
}

/** Without properties that have their default, as in proto3's JSON; JSON.stringify omits undefined ones. */
function endValue({ exitCode, exited, status, error, reason, signal, usage }: EndEvent) {
  return {
    exitCode: exitCode || undefined,
    exited: exited || undefined,
    status: status || undefined,
    error: error ?? undefined,
    reason: REASON[reason] === 0 ? undefined : EndReasonSchema.value[REASON[reason]]?.name,
    signal: signal ?? undefined,
    usage: {
      userMicros: usage.userMicros === 0 ? undefined : String(usage.userMicros),
      systemMicros: usage.systemMicros === 0 ? undefined : String(usage.systemMicros),
      peakMemoryBytes: usage.peakMemoryBytes === null ? undefined : String(usage.peakMemoryBytes),
    },
  };
}
