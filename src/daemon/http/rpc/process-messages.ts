import { create } from '@bufbuild/protobuf';
import { EnvdError } from '../../../base/errors.ts';
import {
  type ProcessConfig as ConfigMessage,
  EndReason,
  type ProcessEvent as EventMessage,
  type Limits as LimitsMessage,
  ProcessEventSchema,
  type ProcessInput,
  type ProcessSelector,
  type PTY,
  PTY_SizeSchema,
  type StreamOffsets,
} from '../../../gen/process/process_pb.js';
import type { TerminalSize } from '../../linux/processes/pty.ts';
import { type ProcessConfig, requireExecutable } from '../../services/process/lifecycle/process-config.ts';
import type { Selector } from '../../services/process/lifecycle/process-index.ts';
import { LIMITS, type ProcessLimits } from '../../services/process/limits/limits.ts';
import type {
  EndEvent,
  EndReason as EndReasonName,
  Offsets,
  ProcessEvent,
} from '../../services/process/output/events.ts';

const REASON: Readonly<Record<EndReasonName, EndReason>> = {
  exited: EndReason.EXITED,
  signaled: EndReason.SIGNALED,
  deadline: EndReason.DEADLINE,
  'out of memory': EndReason.OUT_OF_MEMORY,
  unknown: EndReason.UNSPECIFIED,
};

/** A process as List shows it. */
interface Listed {
  readonly config: ProcessConfig;
  readonly pid: number;
  readonly tag: string | null;
}

/** Throws `invalid_argument` for a command that can never be started. */
export function configOf(message: ConfigMessage | undefined): ProcessConfig {
  if (!message) throw new EnvdError('invalid_argument', 'process is missing');
  const { cmd: command, args, envs: environment, cwd = null } = message;
  const config = { command, args, environment, cwd };
  requireExecutable(config);
  return config;
}

/** Returns the limits of a process; null if it has none. Throws `invalid_argument` for a value that no system can keep. */
export function limitsOf(message: LimitsMessage | undefined): ProcessLimits | null {
  if (!message) return null;
  const { $typeName: _, $unknown: __, memoryBytes, fileBytes, ...others } = message;
  const bytes = { memoryBytes: toNumber(memoryBytes), fileBytes: toNumber(fileBytes) };
  return LIMITS.read({ ...others, ...bytes }, 'limits');
}

const toNumber = (bytes: bigint | undefined) => (bytes === undefined ? undefined : Number(bytes));

/** Returns a process for List's response, in a form that JSON.stringify() can encode (see `MessageOptions.isOwnJson`). */
export function infoOf({ config, pid, tag }: Listed) {
  const { command, args, environment, cwd } = config;
  return {
    config: {
      cmd: command,
      ...(args.length > 0 && { args: [...args] }),
      ...(Object.keys(environment).length > 0 && { envs: { ...environment } }),
      ...(cwd !== null && { cwd }),
    },
    pid,
    ...(tag !== null && { tag }),
  };
}

/** Returns the size of a terminal. A missing size, and 0, become 80 columns and 24 rows. */
export function sizeOf({ size }: PTY): TerminalSize {
  return { cols: size?.cols || 80, rows: size?.rows || 24 };
}

/** Throws `invalid_argument` for a request that names no process. */
export function selectorOf(message: ProcessSelector | undefined): Selector {
  const selector = message?.selector;
  if (selector?.case === 'pid') return { pid: selector.value };
  if (selector?.case === 'tag') return { tag: selector.value };
  throw new EnvdError('invalid_argument', 'process selector is missing: name a pid or a tag');
}

export function inputOf(message: ProcessInput | undefined): { kind: 'stdin' | 'pty'; bytes: Uint8Array } {
  const input = message?.input;
  if (!input?.case) throw new EnvdError('invalid_argument', 'input is missing: send stdin or pty');
  return { kind: input.case, bytes: input.value };
}

export function eventMessage(event: ProcessEvent): EventMessage {
  return create(ProcessEventSchema, { event: eventCase(event) });
}

function eventCase(event: ProcessEvent) {
  switch (event.type) {
    case 'start':
      return {
        case: 'start',
        value: {
          pid: event.pid,
          ...(event.offsets && { offsets: offsets(event.offsets) }),
          ...(event.size && { size: create(PTY_SizeSchema, event.size) }),
        },
      } as const;
    case 'gap':
      return { case: 'gap', value: { from: offsets(event.from), to: offsets(event.to) } } as const;
    case 'output':
      return { case: 'data', value: { output: { case: event.stream, value: event.bytes } } } as const;
    case 'end':
      return { case: 'end', value: endValue(event) } as const;
  }
}

function endValue({ exitCode, exited, status, error, reason, signal, usage }: EndEvent) {
  const { userMicros, systemMicros, peakMemoryBytes, refusedTasks } = usage;
  return {
    exitCode,
    exited,
    status,
    ...(error !== null && { error }),
    reason: REASON[reason],
    ...(signal !== null && { signal }),
    usage: {
      userMicros: BigInt(userMicros),
      systemMicros: BigInt(systemMicros),
      ...(peakMemoryBytes !== null && { peakMemoryBytes: BigInt(peakMemoryBytes) }),
      ...(refusedTasks !== undefined && { refusedTasks: BigInt(refusedTasks) }),
    },
  };
}

function offsets({ stdout, stderr, pty }: Offsets) {
  return { stdout: BigInt(stdout), stderr: BigInt(stderr), pty: BigInt(pty) };
}

/** Returns the offsets from which a client resumes; null when it does not resume. */
export function offsetsOf(message: StreamOffsets | undefined): Offsets | null {
  if (!message) return null;
  return { stdout: Number(message.stdout), stderr: Number(message.stderr), pty: Number(message.pty) };
}
