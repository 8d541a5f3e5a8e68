import type { ProcessExit } from '../../../linux/processes/spawn.ts';
import { type Channels, NO_ENDS } from '../output/channels.ts';
import type { EndEvent, Offsets } from '../output/events.ts';
import type { Output } from '../output/output.ts';
import type { Reader } from '../output/reader.ts';
import { type KeptConfig, shortened } from './process-config.ts';
import type { ProcessState } from './process-state.ts';
import type { ProcessRecord } from './records.ts';

/** What remains of a process that has ended. */
export interface Remains {
  readonly pid: number;
  readonly tag: string | null;
  readonly startId: string | null;
  readonly isChild: boolean;
  readonly config: KeptConfig;
  /** It has the end event. */
  readonly output: Output;
  readonly record: ProcessRecord;
  /** Its output is discarded; others may hold that open. */
  readonly channels: Channels;
  readonly exit: ProcessExit | null;
  readonly end: EndEvent;
  /** When the end event was appended, by `monotonicMs`. */
  readonly endedAt: number;
}

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
  readonly #output: Output;
  readonly #record: ProcessRecord;
  readonly #kind: Channels['kind'];
  readonly #isChild: boolean;
  readonly #exit: ProcessExit | null;
  /** Null: no process holds its output open. */
  #held: Channels | null;

  constructor({ pid, tag, startId, isChild, config, output, record, channels, exit, end, endedAt }: Remains) {
    this.pid = pid;
    this.tag = tag;
    this.startId = startId;
    this.config = shortened(config);
    this.end = end;
    this.endedAt = endedAt;
    this.#output = output;
    this.#record = record;
    this.#kind = channels.kind;
    this.#isChild = isChild;
    this.#exit = exit;
    const isHeld = Object.values(channels.ends).some((end) => end !== null);
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
    const { pid, tag, startId, config, end, endedAt } = this;
    return {
      ...{ pid, tag, startId, config, end, endedAt },
      kind: this.#kind,
      ends: this.#held?.ends ?? NO_ENDS,
      pidfd: null,
      isChild: this.#isChild,
      leaf: null,
      deadlineAt: null,
      totals: this.#output.totals,
      number: this.#output.number,
      unwritten: null,
      ...{ isInputClosed: true, isKilled: false, isExpired: false },
      exit: this.#exit,
    };
  }

  /** Its state with the key of its record, for a later program of this process. */
  get stateWithRecord(): ProcessState & { readonly record: string } {
    return { ...this.state, record: this.#record.key };
  }

  #released(): void {
    this.#held = null;
  }
}
