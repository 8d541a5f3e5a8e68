import type { PipePoller, ReadEnd } from '../../../linux/processes/pipe-ends.ts';
import type { Offsets, OutputStream } from './events.ts';
import { STREAMS } from './output-store.ts';

export type OnOutput = (stream: OutputStream, bytes: Buffer) => void;

/** What reads the output of a process. */
export interface OutputSource {
  readonly poller: PipePoller;
  /** The number of the process in the kept output. */
  readonly process: number;
  /** Bytes of all streams so far. */
  readonly totals: Offsets;
}

/** Reads a stream of a process; with `isWatched` false only after `ReadEnd.read`. */
export function readOutput(
  { poller, process, totals }: OutputSource,
  stream: OutputStream,
  descriptor: number,
  onBytes: (bytes: Buffer) => void,
  isWatched: boolean,
): ReadEnd {
  const owner = { process, stream: STREAMS.indexOf(stream), offset: totals[stream] };
  return poller.read(descriptor, onBytes, owner, isWatched);
}

/** The read end of stdout or stderr. */
export class PipeOutput {
  /** Null when it was closed already for an earlier program. */
  readonly #end: ReadEnd | null;
  /** Bytes that were in the pipe when the process was reaped and are still unread; null before. */
  #unread: number | null = null;
  #onDrained: () => void = () => {};
  #onBytes: ((bytes: Buffer) => void) | null;

  /** `isOver`: the process has ended, `drained` is called next. */
  constructor(
    source: OutputSource,
    stream: 'stdout' | 'stderr',
    descriptor: number | null,
    onOutput: OnOutput,
    isOver: boolean,
  ) {
    this.#onBytes = (bytes) => onOutput(stream, bytes);
    const take = (bytes: Buffer) => this.#received(bytes);
    this.#end = descriptor === null ? null : readOutput(source, stream, descriptor, take, !isOver);
  }

  /** Resolves when no process holds it open and everything has been read. */
  get closed(): Promise<void> {
    return this.#end?.closed ?? Promise.resolve();
  }

  get descriptor(): number | null {
    return this.#end?.openDescriptor ?? null;
  }

  setPaused(paused: boolean): void {
    this.#end?.setPaused(paused);
  }

  /** Resolves when everything that is in the pipe now has been read; null: that has happened. */
  drained(): Promise<void> | null {
    this.#unread = this.#end?.pending ?? 0;
    this.#end?.read();
    if (this.#unread <= 0) return null;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onDrained = resolve;
    void this.closed.then(resolve);
    return promise;
  }

  discard(): void {
    this.#onBytes = null;
    this.#end?.setPaused(false);
    this.#end?.unref();
  }

  #received(bytes: Buffer): void {
    this.#onBytes?.(bytes);
    if (this.#unread === null) return;
    this.#unread -= bytes.length;
    if (this.#unread <= 0) this.#onDrained();
  }
}
