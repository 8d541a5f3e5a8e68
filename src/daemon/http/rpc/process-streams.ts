import { create, type DescMessage, type MessageShape } from '@bufbuild/protobuf';
import { EnvdError } from '../../../base/errors.ts';
import type { Feed } from '../../../base/feed.ts';
import {
  type ConnectRequestSchema,
  ConnectResponseSchema,
  type ProcessEvent as EventMessage,
  type KeepOutput,
  Process,
  ProcessEventSchema,
  type StartRequest,
  type StartRequestSchema,
  StartResponseSchema,
} from '../../../gen/process/process_pb.js';
import type { Guest } from '../../services/guest/guest.ts';
import type { Prepared } from '../../services/process/lifecycle/start.ts';
import type { ProcessEvent } from '../../services/process/output/events.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { type Codec, encodeFrame } from '../protocol/codec.ts';
import type { EventStream } from '../protocol/event-stream.ts';
import type { FrameSink } from '../protocol/frame-batch.ts';
import { callerOf } from '../protocol/request.ts';
import { addOutputFrame } from './event-frames.ts';
import { configOf, eventMessage, limitsOf, offsetsOf, selectorOf, sizeOf } from './process-messages.ts';

export interface ProcessDependencies {
  readonly processes: ProcessTable;
  readonly guest: Guest;
}

/** Prepares to keep the output of a process. */
export type OutputKeeper = (wanted: KeepOutput, isTerminal: boolean) => Promise<Prepared>;

/** Returns the common part of Start and Connect, which both send the events of a process. `wrap` returns the response for an event. */
function processEvents<Output extends DescMessage>(
  schema: Output,
  wrap: (event: EventMessage) => MessageShape<Output>,
) {
  const message = (event: ProcessEvent) => wrap(eventMessage(event));
  return {
    ignoreUnknownFields: true,
    message,
    addFrame(event: ProcessEvent, codec: Codec, batch: FrameSink) {
      if (event.type === 'output') addOutputFrame(event, codec, batch);
      else batch.add(encodeFrame(schema, message(event), codec));
    },
    isLast: ({ type }: ProcessEvent) => type === 'end',
    keepalive: wrap(create(ProcessEventSchema, { event: { case: 'keepalive', value: {} } })),
  };
}

/** Returns Start. The timeout applies to the process, which keeps running when the client disconnects. */
export function startStream(
  dependencies: ProcessDependencies,
  keeper: OutputKeeper | null = null,
): EventStream<ProcessEvent, typeof StartRequestSchema, typeof StartResponseSchema> {
  return {
    ...processEvents(StartResponseSchema, (event) => create(StartResponseSchema, { event })),
    method: Process.method.start,
    ownsTimeout: true,
    open: (request, call, timeoutMs) => openStart(dependencies, keeper, request, call, timeoutMs),
  };
}

/** A tag or start id may have this many bytes, because the daemon keeps it until 30 s after the process' end. */
const MOST_NAMED = 4096;

/** Returns `name`. Throws `invalid_argument` when it is too long. */
function requireShort(what: string, name: string): string {
  const length = Buffer.byteLength(name);
  if (length <= MOST_NAMED) return name;
  throw new EnvdError('invalid_argument', `${what} is longer than ${MOST_NAMED} bytes: ${length}`);
}

async function openStart(
  { processes, guest }: ProcessDependencies,
  keeper: OutputKeeper | null,
  request: StartRequest,
  call: CallScope,
  timeoutMs: number | null,
): Promise<Feed<ProcessEvent>> {
  const limits = limitsOf(request.limits);
  const startId = requireShort('start id', request.startId ?? '') || null;
  const start = {
    config: configOf(request.process),
    user: callerOf(call, guest),
    tag: request.tag === undefined ? null : requireShort('tag', request.tag),
    terminal: request.pty ? sizeOf(request.pty) : null,
    stdin: request.stdin ?? true,
    startId,
    ...(limits && { limits }),
    // A start with an id continues without this client, because other clients may wait for it too.
    ...(startId === null && { throwIfAborted: () => call.throwIfAborted() }),
  };
  // connect-node keeps the message until the stream ends, and the command may have megabytes.
  delete request.process;
  const { keepOutput } = request;
  const prepare = keeper && keepOutput && (() => keeper(keepOutput, start.terminal !== null));
  const feed = await processes.start(prepare ? { ...start, prepare } : start, timeoutMs);
  call.subject = { pid: feed.pid };
  return feed;
}

/** Returns Connect, which sends the further events of a process that is running or has just ended. */
export function connectStream({
  processes,
}: ProcessDependencies): EventStream<
  ProcessEvent,
  typeof ConnectRequestSchema,
  typeof ConnectResponseSchema
> {
  return {
    ...processEvents(ConnectResponseSchema, (event) => create(ConnectResponseSchema, { event })),
    method: Process.method.connect,
    ownsTimeout: false,
    open: async (request, call) => {
      const process = processes.findRetained(selectorOf(request.process));
      call.subject = { pid: process.pid };
      const from = offsetsOf(request.resumeFrom);
      return request.screen ? process.join(from) : process.output.read(process.pid, from);
    },
  };
}
