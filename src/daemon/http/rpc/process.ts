import type { ServiceImpl } from '@connectrpc/connect';
import { within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import {
  type ListRequest,
  type ListResponseSchema,
  type Process,
  type ProcessSelector,
  Signal,
  SignalSchema,
  SignalScope,
  type StreamInputRequest,
} from '../../../gen/process/process_pb.js';
import { MAX_SIGNAL, SIGKILL } from '../../linux/system/signals.ts';
import type { ManagedProcess } from '../../services/process/lifecycle/process.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { choicesOf } from '../connect/codec.ts';
import type { UnaryCall } from '../connect/connect-unary.ts';
import { infoOf, inputOf, selectorOf, sizeOf } from './process-messages.ts';

/** How long SIGKILL waits for the end of the process, in milliseconds: one in state D may not end soon. */
const KILL_WAIT_MS = 250;

/** The calls of `process.Process`, except its event streams. */
export function processService(processes: ProcessTable) {
  /** The process that the call is about. */
  const find = (selector: ProcessSelector | undefined, call: UnaryCall) => {
    const process = processes.find(selectorOf(selector));
    call.about?.({ pid: process.pid });
    return process;
  };
  return {
    list(_request: ListRequest, { list }: UnaryCall<typeof ListResponseSchema>) {
      const all = processes.list();
      const messageOf = (some: readonly ManagedProcess[]) =>
        some.length > 0 ? { processes: some.map(infoOf) } : {};
      return list ? list.addAll(all, sizeOfInfo, messageOf) : messageOf(all);
    },
    update({ process, pty }, context: UnaryCall) {
      const target = find(process, context);
      if (pty) target.resize(sizeOf(pty));
      return {};
    },
    async sendInput({ process, input }, context: UnaryCall) {
      const { kind, bytes } = inputOf(input);
      await find(process, context).write(kind, bytes, context.signal);
      return {};
    },
    async streamInput(requests, context) {
      await writeStream(requests, processes, context.signal);
      return {};
    },
    async sendSignal({ process, signal, scope }, context: UnaryCall) {
      const target = find(process, context);
      const number: number = signal;
      if (number === Signal.UNSPECIFIED) {
        throw new EnvdError('invalid_argument', `signal is missing: use ${choicesOf(SignalSchema)}`);
      }
      if (number < 0 || number > MAX_SIGNAL) {
        throw new EnvdError('invalid_argument', `invalid signal ${number}: signals are 1 to ${MAX_SIGNAL}`);
      }
      if (scope === SignalScope.TREE) target.signalTree(number);
      else await target.signal(number, context.signal);
      // Clients check immediately after SIGKILL that the process is gone.
      if (number === SIGKILL) await within(KILL_WAIT_MS, target.ended, () => null);
      return {};
    },
    closeStdin({ process }, context: UnaryCall) {
      find(process, context).closeStdin();
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof Process>>;
}

/** The approximate bytes of `infoOf`, which may be some MiB. */
function sizeOfInfo({ config: { command, args, environment } }: ManagedProcess): number {
  let bytes = command.length;
  for (const one of args) bytes += one.length;
  for (const name of Object.keys(environment)) bytes += name.length + (environment[name]?.length ?? 0);
  return bytes;
}

/** Writes to the process selected by the first message, even if its tag is reused later. */
async function writeStream(
  requests: AsyncIterable<StreamInputRequest>,
  processes: ProcessTable,
  signal: AbortSignal,
): Promise<void> {
  let target: ManagedProcess | null = null;
  for await (const { event } of requests) {
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
