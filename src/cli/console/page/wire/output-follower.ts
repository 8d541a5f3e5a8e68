import { CallError, callErrorOf } from './call-error.ts';
import type { DaemonClient } from './daemon-client.ts';
import { bytesOfBase64 } from './envelopes.ts';
import type {
  EndMessage,
  OffsetsMessage,
  OutputKindName,
  ProcessEventMessage,
  StartMessage,
} from './messages.ts';
import { NO_OUTPUT, type OutputOffsets, type OutputSource } from './output-source.ts';

/** What happens to a process that is followed. */
export type FollowedEvent =
  | { readonly type: 'started'; readonly pid: number }
  | { readonly type: 'data'; readonly stream: OutputKindName; readonly bytes: Uint8Array }
  /** Output that the daemon does not keep any more, in bytes; null: how much is not known. */
  | { readonly type: 'gap'; readonly bytes: number | null }
  | { readonly type: 'lost'; readonly message: string }
  | { readonly type: 'resumed' }
  | { readonly type: 'end'; readonly end: EndMessage };

export interface OutputFollowerOptions {
  readonly signal: AbortSignal;
  /** Whether the process has a terminal, whose screen is shown. */
  readonly screen: boolean;
  /** null: the daemon may be called at any time. */
  readonly gate: CallGate | null;
}

/** Tells why a daemon may not be called now: a call would wake a paused sandbox. */
export interface CallGate {
  /** null: nothing is known that is against it. */
  readonly problem: string | null;
  /** Asks anew. */
  findProblem(): Promise<string | null>;
}

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;
const STREAMS = ['stdout', 'stderr', 'pty'] as const;

/**
 * Follows a process to its end. After a lost connection it attaches again, at the byte where the output broke off if the daemon can do
 * that. A reader that takes its time slows the process down, and nothing is kept here.
 */
export class OutputFollower {
  readonly #daemon: DaemonClient;
  readonly #source: OutputSource;
  readonly #options: OutputFollowerOptions;
  readonly #offsets: Record<OutputKindName, number>;
  #pid: number | null;
  #isAgain = false;
  #isKnown: boolean;

  constructor(daemon: DaemonClient, source: OutputSource, options: OutputFollowerOptions) {
    this.#daemon = daemon;
    this.#source = source;
    this.#options = options;
    this.#pid = 'pid' in source ? source.pid : null;
    const from = 'pid' in source ? source.from : undefined;
    this.#offsets = { ...NO_OUTPUT, ...from };
    this.#isKnown = from !== undefined;
  }

  /** What was read up to the event that was told last. */
  get offsets(): OutputOffsets {
    return { ...this.#offsets };
  }

  /** Throws `CallError`. Ends without an end event when the signal of the options aborts. */
  async *events(): AsyncGenerator<FollowedEvent> {
    const { signal, gate } = this.#options;
    // What the page goes on with must not wake a sandbox; what the user starts may.
    for (; this.#isKnown && gate?.problem && !signal.aborted; ) await pauseOf(FIRST_PAUSE_MS);
    for (;;) {
      const failure = yield* this.#read();
      if (failure === null || signal.aborted) return;
      const problem = await gate?.findProblem();
      if (this.#pid === null || !(failure.isLost || problem)) throw failure;
      yield { type: 'lost', message: problem ?? `${failure.message}; trying again` };
      await this.#untilReachable();
      if (signal.aborted) return;
      this.#isAgain = true;
    }
  }

  /** Reads one stream; returns null at the end of the process, or why the stream broke off. */
  async *#read(): AsyncGenerator<FollowedEvent, CallError | null> {
    try {
      for await (const { event } of this.#open()) {
        const told = event && this.#take(event);
        if (told) yield told;
        if (told?.type === 'end') return null;
      }
      return new CallError('network', 'the daemon ended the stream');
    } catch (error) {
      return callErrorOf(error);
    }
  }

  #open(): AsyncGenerator<ProcessEventMessage> {
    const { signal, screen } = this.#options;
    if (this.#pid !== null) {
      const resumeFrom = Object.fromEntries(STREAMS.map((name) => [name, String(this.#offsets[name])]));
      const message = { process: { pid: this.#pid }, resumeFrom, screen };
      return this.#daemon.stream('process.Process/Connect', message, { signal });
    }
    const { start, user } = this.#source as { start: StartMessage; user: string };
    const message = { ...start, startId: crypto.randomUUID() };
    return this.#daemon.stream('process.Process/Start', message, { signal, user });
  }

  #take({ start, data, gap, end }: NonNullable<ProcessEventMessage['event']>): FollowedEvent | null {
    if (start) return this.#takeStart(start.pid ?? 0, start.offsets);
    if (data) {
      const stream = STREAMS.find((name) => data[name] !== undefined);
      if (stream === undefined) return null;
      const bytes = bytesOfBase64(data[stream] ?? '');
      this.#offsets[stream] += bytes.length;
      return { type: 'data', stream, bytes };
    }
    if (gap) {
      this.#moveTo(gap.to ?? {});
      return { type: 'gap', bytes: sumOf(gap.to) - sumOf(gap.from) };
    }
    return end ? { type: 'end', end } : null;
  }

  #takeStart(pid: number, offsets: OffsetsMessage | undefined): FollowedEvent {
    this.#pid = pid;
    if (offsets) this.#moveTo(offsets);
    const isFirst = !this.#isAgain && !this.#isKnown;
    this.#isKnown = false;
    if (isFirst || (offsets && !this.#isAgain)) return { type: 'started', pid };
    // A daemon without the extension goes on with what comes now.
    return offsets ? { type: 'resumed' } : { type: 'gap', bytes: null };
  }

  #moveTo(offsets: OffsetsMessage): void {
    for (const name of STREAMS) this.#offsets[name] = Number(offsets[name] ?? 0);
  }

  /** Waits until the daemon answers again. Throws what a refusal says. */
  async #untilReachable(): Promise<void> {
    const { signal, gate } = this.#options;
    for (let pause = FIRST_PAUSE_MS; !signal.aborted; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      await pauseOf(pause);
      if (gate?.problem) continue;
      try {
        await this.#daemon.get('/health', {}, { signal: AbortSignal.timeout(10_000) });
        return;
      } catch (error) {
        if (callErrorOf(error).isEnded) throw error;
      }
    }
  }
}

function pauseOf(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function sumOf(offsets: OffsetsMessage = {}): number {
  return STREAMS.reduce((sum, name) => sum + Number(offsets[name] ?? 0), 0);
}
