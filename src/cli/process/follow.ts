import type { ProcessEvent, ProcessEvent_EndEvent, StreamOffsets } from '../../gen/process/process_pb.js';
import { type Connection, KEEPALIVE_S } from '../connection/connection.ts';
import { isLostConnection, isPaused, isUnknownSandbox } from '../connection/failures.ts';
import { Failure } from '../output/failure.ts';
import { Outage } from './outage.ts';
import { selectPid } from './selector.ts';

export type OutputKind = 'stdout' | 'stderr' | 'pty';

/** The events of a process that is followed. */
export type FollowEvent =
  | { readonly type: 'started'; readonly pid: number }
  | { readonly type: 'output'; readonly kind: OutputKind; readonly data: Uint8Array }
  /** The daemon no longer has so many bytes of output. The number is null if it is unknown. */
  | { readonly type: 'gap'; readonly bytes: number | null }
  /** Nothing has come for one interval of keepalives. */
  | { readonly type: 'idle' }
  | { readonly type: 'lost'; readonly failure: Failure }
  /** The sandbox is paused, and the follower waits until it is resumed. */
  | { readonly type: 'paused'; readonly failure: Failure }
  | { readonly type: 'resumed' }
  | { readonly type: 'end'; readonly end: ProcessEvent_EndEvent };

/** The stream that a call opens. */
type Opened = AsyncIterable<{ readonly event?: ProcessEvent | undefined }>;

export interface FollowOptions {
  /** Opens the first stream. */
  open(options: StreamCall): Opened;
  /** The daemon sends keepalives at this interval, in seconds. */
  readonly keepaliveS?: number;
  /** The process has a terminal, whose screen is shown. */
  readonly screen?: boolean;
  /** A lost connection is tried again for this time, in milliseconds. */
  readonly retryMs?: number;
  readonly signal?: AbortSignal;
}

/** The options of a call that opens a stream. */
export interface StreamCall {
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

const RETRY_MS = 10 * 60_000;

/**
 * Follows a process to its end. After a lost connection it attaches again, at the byte where the output broke off if the
 * daemon supports that. It keeps no output, so a slow reader slows the process down.
 */
export class Follower {
  readonly #connection: Connection;
  readonly #options: FollowOptions;
  readonly #keepaliveS: number;
  /** The number of bytes of each stream so far. */
  readonly #offsets = { stdout: 0n, stderr: 0n, pty: 0n };
  #pid: number | null = null;
  #isReattached = false;
  #outage: Outage | null = null;

  constructor(connection: Connection, options: FollowOptions) {
    this.#connection = connection;
    this.#options = options;
    this.#keepaliveS = options.keepaliveS ?? KEEPALIVE_S;
  }

  /** The pid of the process, or null until it has started. */
  get pid(): number | null {
    return this.#pid;
  }

  /** The number of bytes of each stream that have come. */
  get offsets(): Readonly<Record<OutputKind, bigint>> {
    return { ...this.#offsets };
  }

  /** Yields the events. Ends without an end event when the signal of the options aborts. Throws `Failure`. */
  async *events(): AsyncGenerator<FollowEvent> {
    for (let open = this.#options.open.bind(this.#options); ; open = this.#attach.bind(this)) {
      const failure = yield* this.#read(open);
      if (failure === null) return;
      this.#outage ??= new Outage(this.#options.retryMs ?? RETRY_MS);
      yield* this.#untilReachable(failure, this.#outage);
      this.#isReattached = true;
    }
  }

  /** Reads one stream. Returns null at the end of the process, or the reason why the stream broke off. */
  async *#read(open: (call: StreamCall) => Opened): AsyncGenerator<FollowEvent, Failure | null> {
    const { signal } = this.#options;
    using watchdog = new Watchdog(this.#keepaliveS * 3000, signal);
    const headers = { 'Keepalive-Ping-Interval': String(this.#keepaliveS) };
    try {
      for await (const { event } of open({ headers, signal: watchdog.signal })) {
        watchdog.pause();
        const told = event && this.#take(event);
        if (told) yield told;
        if (told?.type === 'end') return null;
        watchdog.resume();
      }
    } catch (error) {
      if (signal?.aborted) return null;
      return this.#explain(error, watchdog.hasExpired);
    }
    return this.#pid === null
      ? Promise.reject(new Failure('failed', 'the daemon ended the stream before the process had started'))
      : new Failure('unreachable', 'the daemon ended the stream');
  }

  /** Returns the failure if the process can be followed further, and otherwise throws it. */
  async #explain(error: unknown, isSilent: boolean): Promise<Failure> {
    const failure = isSilent
      ? new Failure('unreachable', `${this.#connection.target.name} does not answer`)
      : await this.#connection.failure(error);
    if (this.#pid !== null && (isSilent || isLostConnection(error))) return failure;
    throw failure;
  }

  #take({ event }: ProcessEvent): FollowEvent | null {
    if (event.case === 'start') return this.#start(event.value.pid, event.value.offsets);
    if (event.case === 'data') {
      const { case: kind, value: data } = event.value.output;
      if (kind === undefined) return null;
      this.#offsets[kind] += BigInt(data.length);
      return { type: 'output', kind, data };
    }
    if (event.case === 'gap') {
      const { from, to } = event.value;
      if (to) this.#moveTo(to);
      return { type: 'gap', bytes: sumOf(to) - sumOf(from) };
    }
    if (event.case === 'keepalive') return { type: 'idle' };
    return event.case === 'end' ? { type: 'end', end: event.value } : null;
  }

  #start(pid: number, offsets: StreamOffsets | undefined): FollowEvent {
    this.#pid = pid;
    this.#outage = null;
    this.#connection.keepAsleep();
    if (offsets) this.#moveTo(offsets);
    if (!this.#isReattached) return { type: 'started', pid };
    // A daemon without the extension continues with the output that comes now.
    return offsets ? { type: 'resumed' } : { type: 'gap', bytes: null };
  }

  #moveTo({ stdout, stderr, pty }: StreamOffsets): void {
    Object.assign(this.#offsets, { stdout, stderr, pty });
  }

  #attach(call: StreamCall): Opened {
    const process = selectPid(this.#pid ?? 0);
    const { screen = false } = this.#options;
    return this.#connection.processes.connect({ process, screen, resumeFrom: { ...this.#offsets } }, call);
  }

  /** Waits until the daemon answers again. Throws the failure when that takes too long, or when the daemon refuses. */
  async *#untilReachable(failure: Failure, outage: Outage): AsyncGenerator<FollowEvent> {
    const { signal } = this.#options;
    if (isPaused(failure)) yield* this.#tellPaused(failure, outage);
    else if (outage.begins) yield { type: 'lost', failure };
    while (!signal?.aborted) {
      await outage.pause(signal);
      const reason = await this.#reasonOfSilence();
      if (reason === null || signal?.aborted) return;
      if (isPaused(reason)) yield* this.#tellPaused(reason, outage);
      else if (isFinal(reason)) throw reason;
      else if (outage.isTooLong) throw failure;
    }
  }

  /** Returns why the daemon does not answer, or null if it does. */
  async #reasonOfSilence(): Promise<unknown> {
    const { signal } = this.#options;
    return this.#connection.http.text({ path: '/health', silenceMs: 10_000, signal }).then(
      () => null,
      (error: unknown) => error,
    );
  }

  *#tellPaused(failure: Failure, outage: Outage): Generator<FollowEvent> {
    if (this.#connection.whenPaused === 'end') throw failure;
    if (outage.pauses()) yield { type: 'paused', failure };
  }
}

/** Returns whether it is of no use to try again. */
function isFinal(error: unknown): boolean {
  return isUnknownSandbox(error) || (error instanceof Failure && error.reason === 'refused');
}

function sumOf(offsets: StreamOffsets | undefined): number {
  return offsets ? Number(offsets.stdout + offsets.stderr + offsets.pty) : 0;
}

/** Aborts a stream when nothing has come for a time, or when another signal aborts. */
class Watchdog implements Disposable {
  readonly #controller = new AbortController();
  readonly #limitMs: number;
  readonly #outer: AbortSignal | undefined;
  #timer: NodeJS.Timeout | undefined;
  hasExpired = false;

  constructor(limitMs: number, outer: AbortSignal | undefined) {
    this.#limitMs = limitMs;
    this.#outer = outer;
    if (outer?.aborted) this.#abort();
    outer?.addEventListener('abort', this.#abort);
    this.resume();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Stops the timer while received data is used, which may take any time. */
  pause(): void {
    clearTimeout(this.#timer);
  }

  resume(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.hasExpired = true;
      this.#abort();
    }, this.#limitMs);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener('abort', this.#abort);
    // A reader that leaves the loop ends the stream too.
    this.#abort();
  }

  readonly #abort = (): void => {
    this.#controller.abort();
  };
}
