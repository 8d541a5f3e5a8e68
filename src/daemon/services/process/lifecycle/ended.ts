import { EnvdError } from '../../../../base/errors.ts';
import { type Channels, NO_ENDS } from '../output/channels.ts';
import type { EndEvent, Offsets } from '../output/events.ts';
import type { Output } from '../output/output.ts';
import type { Reader } from '../output/reader.ts';
import { type KeptConfig, shortened } from './process-config.ts';
import type { ProcessState, RecordedState } from './process-state.ts';
import type { ProcessRecord } from './records.ts';

/** A process that has ended, for clients that connect later. It keeps little, because there may be thousands. */
export class EndedProcess {
  readonly pid: number;
  readonly tag: string | null;
  readonly startId: string | null;
  /** What was asked for, as far as a repeated start needs it. */
  readonly config: KeptConfig;
  readonly end: EndEvent;
  /** The end event was appended at this time, by `monotonicMs`. */
  readonly endedAt: number;
  readonly output: Output;
  readonly #last: ProcessState;
  readonly #record: ProcessRecord;
  /** Null if no process holds the output open. */
  #held: Channels | null;

  /** `output` must have the end event. What `channels` read is discarded, but other processes may hold them open. */
  constructor(
    last: ProcessState & Pick<EndedProcess, 'end'>,
    output: Output,
    record: ProcessRecord,
    channels: Channels,
  ) {
    this.config = shortened(last.config);
    this.#last = { ...last, config: this.config };
    ({ pid: this.pid, tag: this.tag, startId: this.startId, end: this.end, endedAt: this.endedAt } = last);
    this.output = output;
    this.#record = record;
    const isHeld = Object.values(channels.ends).some((descriptor) => descriptor !== null);
    this.#held = isHeld ? channels : null;
    if (isHeld)
      void channels.closed.then(() => {
        this.#held = null;
      });
    record.keep(this);
  }

  /** Returns a reader that shows what is kept of the terminal. Throws `failed_precondition` without a terminal. */
  join(from: Offsets | null): Reader {
    if (this.#last.kind !== 'terminal') throw noTerminal(this.pid);
    return this.output.read(this.pid, from);
  }

  /** Drops the output that is kept for clients that reconnect, and the record once no process holds the output open. */
  forget(): void {
    this.output.forget();
    if (this.#held === null) this.#record.drop();
    else void this.#held.closed.then(() => this.#record.drop());
  }

  /** Returns the state for the next daemon. */
  get state(): ProcessState {
    return { ...this.#last, ends: this.#held?.ends ?? NO_ENDS };
  }

  /** Returns the state with the key of its record, for a later program of this process. */
  get stateWithRecord(): RecordedState {
    return { ...this.state, record: this.#record.key };
  }
}

export function noTerminal(pid: number): EnvdError {
  return new EnvdError('failed_precondition', `cannot join the screen of process ${pid}: it has no terminal`);
}
