import { type Channels, NO_ENDS } from '../output/channels.ts';
import type { EndEvent, Offsets } from '../output/events.ts';
import type { Output } from '../output/output.ts';
import type { Reader } from '../output/reader.ts';
import { type KeptConfig, shortened } from './process-config.ts';
import type { ProcessState, RecordedState } from './process-state.ts';
import type { ProcessRecord } from './records.ts';

/** The state of a process that has ended. */
export type LastState = ProcessState & { readonly end: EndEvent };

/** A process that has ended, for clients that connect later. There may be thousands: what is not needed is dropped. */
export class EndedProcess {
  readonly pid: number;
  readonly tag: string | null;
  readonly startId: string | null;
  /** What was asked for, as far as a repeated start needs it. */
  readonly config: KeptConfig;
  readonly end: EndEvent;
  /** When the end event was appended, by `monotonicMs`. */
  readonly endedAt: number;
  readonly #last: LastState;
  readonly #output: Output;
  readonly #record: ProcessRecord;
  /** Null: no process holds its output open. */
  #held: Channels | null;

  /** `output` has the end event; what `channels` read is discarded, and others may hold them open. */
  constructor(last: LastState, output: Output, record: ProcessRecord, channels: Channels) {
    this.config = shortened(last.config);
    this.#last = { ...last, config: this.config };
    ({ pid: this.pid, tag: this.tag, startId: this.startId, end: this.end, endedAt: this.endedAt } = last);
    this.#output = output;
    this.#record = record;
    const isHeld = Object.values(channels.ends).some((descriptor) => descriptor !== null);
    this.#held = isHeld ? channels : null;
    if (isHeld) void channels.closed.then(() => this.#released());
    record.keep(this);
  }

  /** A reader of the start event and the end event; with `from`, the kept output from these offsets on comes between. */
  read(from: Offsets | null): Reader {
    return this.#output.read(this.pid, from);
  }

  /** Whether a reader has not taken all output. */
  get hasUnread(): boolean {
    return this.#output.hasUnread;
  }

  /** Drops the output that is kept for clients that reconnect, and the record once no process holds the output open. */
  forget(): void {
    this.#output.forget();
    if (this.#held === null) this.#record.drop();
    else void this.#held.closed.then(() => this.#record.drop());
  }

  /** Its state for the next daemon. */
  get state(): ProcessState {
    return { ...this.#last, ends: this.#held?.ends ?? NO_ENDS };
  }

  /** Its state with the key of its record, for a later program of this process. */
  get stateWithRecord(): RecordedState {
    return { ...this.state, record: this.#record.key };
  }

  #released(): void {
    this.#held = null;
  }
}
