import type { ServiceImpl } from '@connectrpc/connect';
import { EnvdError } from '../../base/errors.ts';
import { type Process, Signal, SignalScope } from '../../gen/process/process_pb.js';
import { MAX_SIGNAL } from '../os/signals.ts';
import type { ProcessTable } from '../services/process/table.ts';
import { inputOf, selectorOf, sizeOf } from './process-messages.ts';

/** The calls of `process.Process` that are no event streams. */
export function processService(processes: ProcessTable) {
  return {
    list() {
      const infos = processes.list().map(({ config, pid, tag }) => ({
        config: {
          cmd: config.command,
          args: [...config.args],
          envs: { ...config.environment },
          ...(config.cwd !== null && { cwd: config.cwd }),
        },
        pid,
        ...(tag !== null && { tag }),
      }));
      return { processes: infos };
    },
    update({ process, pty }) {
      const target = processes.find(selectorOf(process));
      if (pty) target.resize(sizeOf(pty));
      return {};
    },
    async sendInput({ process, input }, context) {
      const { kind, bytes } = inputOf(input);
      await processes.find(selectorOf(process)).write(kind, bytes, context.signal);
      return {};
    },
    async streamInput(requests, context) {
      let selector: ReturnType<typeof selectorOf> | null = null;
      for await (const { event } of requests) {
        if (event.case === 'start') selector = selectorOf(event.value.process);
        if (event.case !== 'data') continue;
        if (!selector)
          throw new EnvdError('invalid_argument', 'the first message of StreamInput must be start');
        const { kind, bytes } = inputOf(event.value.input);
        await processes.find(selector).write(kind, bytes, context.signal);
      }
      return {};
    },
    sendSignal({ process, signal, scope }) {
      const target = processes.find(selectorOf(process));
      const number: number = signal;
      if (number === Signal.UNSPECIFIED) throw new EnvdError('invalid_argument', 'signal is missing');
      if (number < 0 || number > MAX_SIGNAL) {
        throw new EnvdError('invalid_argument', `invalid signal ${number}: signals are 1 to ${MAX_SIGNAL}`);
      }
      if (scope === SignalScope.TREE) target.signalTree(number);
      else target.signal(number);
      return {};
    },
    closeStdin({ process }) {
      processes.find(selectorOf(process)).closeStdin();
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof Process>>;
}
