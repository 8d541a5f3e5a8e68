import { setImmediate as nextTurn } from 'node:timers/promises';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import {
  type ListRequest,
  type ListResponse,
  type ListResponseSchema,
  Process,
  type ProcessSelector,
  Signal,
  SignalSchema,
  SignalScope,
  type StreamInputRequest,
} from '../../../gen/process/process_pb.js';
import { MAX_SIGNAL, SIGKILL } from '../../linux/system/signals.ts';
import type { ManagedProcess } from '../../services/process/lifecycle/process.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { choicesOf } from '../protocol/codec.ts';
import { handleNodeCall } from '../protocol/connect-node.ts';
import { unaryRpc } from '../protocol/connect-unary.ts';
import type { Rpc } from '../protocol/rpc.ts';
import { infoOf, inputOf, selectorOf, sizeOf } from './process-messages.ts';

/** SIGKILL waits this long for the end of the process. A process in uninterruptible sleep may not end soon. */
const KILL_WAIT_MS = 250;
/** One turn of the event loop encodes this many bytes of List's response. */
const TURN_BYTES = 256 * 1024;
/** One turn takes this many messages of StreamInput, of which a read of the connection may have thousands. */
const TURN_MESSAGES = 128;

/** Unknown properties are ignored, because newer clients send them. */
const MESSAGES = { ignoreUnknownFields: true, isOwnJson: true };

/** Answers a List that asks for what an extension tells, whole or in parts; null: it does not. */
export type Listing = (
  request: ListRequest,
  call: CallScope,
) => Promise<ListResponse> | AsyncIterable<MessageInitShape<typeof ListResponseSchema>> | null;

/** Returns the RPCs of `process.Process`, except its event streams. The first of `listings` that answers a List does so. */
export function processRpcs(processes: ProcessTable, listings: readonly Listing[] = []): Rpc[] {
  const { method } = Process;
  /** Finds the process that the call is about, and records it as the subject of the call. */
  const find = (selector: ProcessSelector | undefined, call: CallScope) => {
    const process = processes.find(selectorOf(selector));
    call.subject = { pid: process.pid };
    return process;
  };
  return [
    unaryRpc(method.list, MESSAGES, (request, call) => {
      for (const listing of listings) {
        const answer = listing(request, call);
        if (answer) return answer;
      }
      return listed(processes.list());
    }),
    unaryRpc(method.update, MESSAGES, ({ process, pty }, call) => {
      const target = find(process, call);
      if (pty) target.resize(sizeOf(pty));
      return {};
    }),
    unaryRpc(method.sendInput, MESSAGES, async ({ process, input }, call) => {
      const { kind, bytes } = inputOf(input);
      await find(process, call).write(kind, bytes, call.signal);
      return {};
    }),
    {
      method: method.streamInput,
      register: (router) =>
        router.rpc(method.streamInput, (requests, context) =>
          handleNodeCall(context, async ({ scope }) => {
            await writeStream(requests, processes, scope.signal);
            return {};
          }),
        ),
    },
    unaryRpc(method.sendSignal, MESSAGES, async ({ process, signal, scope }, call) => {
      const target = find(process, call);
      const number: number = signal;
      if (number === Signal.UNSPECIFIED) {
        throw new EnvdError('invalid_argument', `signal is missing: use ${choicesOf(SignalSchema)}`);
      }
      if (number < 0 || number > MAX_SIGNAL) {
        throw new EnvdError('invalid_argument', `invalid signal ${number}: signals are 1 to ${MAX_SIGNAL}`);
      }
      if (scope === SignalScope.TREE) target.signalTree(number);
      else target.signal(number);
      // Clients check immediately after SIGKILL that the process is gone.
      if (number === SIGKILL) await within(KILL_WAIT_MS, target.ended, () => null);
      return {};
    }),
    unaryRpc(method.closeStdin, MESSAGES, ({ process }, call) => {
      find(process, call).closeStdin();
      return {};
    }),
  ];
}

/** Returns the processes as one message, or as slices if it would be large. */
function listed(all: readonly ManagedProcess[]) {
  let bytes = 0;
  for (const process of all) bytes += sizeOfInfo(process);
  return bytes < TURN_BYTES ? messageOf(all) : slicesOf(all);
}

async function* slicesOf(all: readonly ManagedProcess[]) {
  let bytes = 0;
  let slice: ManagedProcess[] = [];
  for (const process of all) {
    bytes += sizeOfInfo(process);
    slice.push(process);
    if (bytes < TURN_BYTES) continue;
    yield messageOf(slice);
    [bytes, slice] = [0, []];
    await nextTurn();
  }
  yield messageOf(slice);
}

const messageOf = (some: readonly ManagedProcess[]) =>
  some.length > 0 ? { processes: some.map(infoOf) } : {};

/** Returns the approximate size of `infoOf`, which may be some MiB, in bytes. */
function sizeOfInfo({ config: { command, args, environment } }: ManagedProcess): number {
  let bytes = command.length;
  for (const one of args) bytes += one.length;
  for (const name of Object.keys(environment)) bytes += name.length + (environment[name]?.length ?? 0);
  return bytes;
}

/** Writes to the process that the first message selects, even if its tag is reused later. */
async function writeStream(
  requests: AsyncIterable<StreamInputRequest>,
  processes: ProcessTable,
  signal: AbortSignal,
): Promise<void> {
  let target: ManagedProcess | null = null;
  let count = 0;
  for await (const { event } of requests) {
    if (++count % TURN_MESSAGES === 0) await nextTurn();
    if (event.case === 'start') {
      if (target)
        throw new EnvdError('invalid_argument', 'only the first message of StreamInput can be start');
      target = processes.find(selectorOf(event.value.process));
    } else if (event.case === 'data') {
      if (!target) throw new EnvdError('invalid_argument', 'the first message of StreamInput must be start');
      const { kind, bytes } = inputOf(event.value.input);
      await target.write(kind, bytes, signal);
    }
  }
}
