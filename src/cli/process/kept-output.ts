import { create } from '@bufbuild/protobuf';
import { ProcessEvent_EndEventSchema } from '../../gen/process/process_pb.js';
import type { Connection } from '../connection/connection.ts';
import { Failure } from '../output/failure.ts';
import type { FollowEvent, OutputKind } from './follow.ts';

/** What the daemon tells of a process whose output lasts, as far as it is needed. */
interface KeptResult {
  readonly pid: number;
  readonly tag: string | null;
  readonly end: {
    readonly exitCode: number;
    readonly exited: boolean;
    readonly status: string;
    readonly error: string | null;
    readonly signal: string | null;
  } | null;
  readonly streams: Readonly<Partial<Record<OutputKind, { readonly droppedBytes: number }>>>;
}

/**
 * Yields the events of a process that is named by its pid or tag. If the daemon does not know it any more, yields what it keeps of
 * its output, one stream after the other, and its end. If it keeps nothing, throws the first failure.
 */
export async function* orKept(
  events: AsyncIterable<FollowEvent>,
  connection: Connection,
  name: string,
): AsyncGenerator<FollowEvent> {
  let isKnown = false;
  try {
    for await (const event of events) {
      isKnown = true;
      yield event;
    }
  } catch (error) {
    if (isKnown || !(error instanceof Failure) || error.reason !== 'not_found') throw error;
    const tag = name.replace(/^tag:/, '');
    const path = `/processes/${encodeURIComponent(tag)}`;
    const json = await connection.http.json({ path: `${path}/result` }).catch(() => null);
    const result = json as KeptResult | null;
    // The daemon takes digits for a pid.
    if (result === null || (tag !== name && result.tag !== tag)) throw error;
    yield* keptEvents(connection, path, result);
  }
}

async function* keptEvents(
  { http }: Connection,
  path: string,
  { pid, end, streams }: KeptResult,
): AsyncGenerator<FollowEvent> {
  yield { type: 'started', pid };
  for (const [stream, { droppedBytes }] of Object.entries(streams)) {
    if (droppedBytes > 0) yield { type: 'gap', bytes: droppedBytes };
    const response = await http.send({ path: `${path}/output`, query: { stream, follow: 'true' } });
    for await (const data of response) yield { type: 'output', kind: stream as OutputKind, data };
  }
  if (!end) return;
  const { error, signal, ...others } = end;
  const more = { ...(error !== null && { error }), ...(signal !== null && { signal }) };
  yield { type: 'end', end: create(ProcessEvent_EndEventSchema, { ...others, ...more }) };
}
