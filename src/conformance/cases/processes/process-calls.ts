import type { MessageInitShape } from '@bufbuild/protobuf';
import { Signal, type StreamInputRequestSchema } from '../../../gen/process/process_pb.js';
import type { TestedDaemon } from '../../suite/daemon.ts';
import type { byPid, byTag } from '../../suite/transcript.ts';

export const SLEEPING = { cmd: 'sleep', args: ['1000'], cwd: '/' };
export const CAT = { cmd: 'cat', cwd: '/' };

export type ProcessName = ReturnType<typeof byPid> | ReturnType<typeof byTag>;
export type InputMessage = MessageInitShape<typeof StreamInputRequestSchema>;

const bytes = (text: string) => new TextEncoder().encode(text);
export const stdinBytes = (text: string) => ({ input: { case: 'stdin', value: bytes(text) } }) as const;
export const ptyBytes = (text: string) => ({ input: { case: 'pty', value: bytes(text) } }) as const;
export const startMessage = (process: ProcessName): InputMessage => ({
  event: { case: 'start', value: { process } },
});
export const dataMessage = (text: string): InputMessage => ({
  event: { case: 'data', value: { input: stdinBytes(text) } },
});

export async function* inputMessages(...all: readonly InputMessage[]): AsyncGenerator<InputMessage> {
  yield* all;
}

export const killWith = (daemon: TestedDaemon, process: ProcessName, signal: Signal = Signal.SIGKILL) =>
  daemon.process.sendSignal({ process, signal });
