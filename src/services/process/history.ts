import type { EventLog } from './event-log.ts';
import type { GapEvent, Offsets, OutputEvent, OutputStream, ProcessEvent, StartEvent } from './events.ts';

/** The last output of a process, for readers that come back: the end of its log, bounded in bytes. */
export class History {
  readonly #log: EventLog;
  readonly #limit: number;
  #first = 0;
  /** The position of the entry before the first. */
  #before = 0;

  constructor(log: EventLog, limitBytes: number) {
    this.#log = log;
    this.#limit = limitBytes;
  }

  /** The number of the first event that is kept. */
  get first(): number {
    return this.#first;
  }

  /** To be called when the log has grown. */
  advance(): void {
    while (this.#log.position - this.#before > this.#limit) {
      this.#before = this.#log.at(this.#first)?.position ?? this.#log.position;
      this.#first += 1;
    }
  }

  /**
   * What a reader gets that comes back: the start with the offsets of what follows, a gap if some of what it asked
   * for is gone, and the kept bytes from the offsets on. `end` are the offsets reached.
   */
  resume(start: StartEvent, from: Offsets, end: Offsets): ProcessEvent[] {
    const kept = this.#output();
    const begin = (stream: OutputStream) =>
      Math.max(from[stream], kept.find((event) => event.stream === stream)?.offset ?? end[stream]);
    const offsets = { stdout: begin('stdout'), stderr: begin('stderr'), pty: begin('pty') };
    const gone = offsets.stdout > from.stdout || offsets.stderr > from.stderr || offsets.pty > from.pty;
    const gap: GapEvent[] = gone ? [{ type: 'gap', from, to: offsets }] : [];
    return [{ ...start, offsets }, ...gap, ...kept.flatMap((event) => tail(event, offsets[event.stream]))];
  }

  #output(): OutputEvent[] {
    const kept: OutputEvent[] = [];
    for (let number = this.#first; number < this.#log.end; number++) {
      const event = this.#log.at(number)?.event;
      if (event?.type === 'output') kept.push(event);
    }
    return kept;
  }
}

/** What of an event lies at or behind `offset`. */
function tail(event: OutputEvent, offset: number): OutputEvent[] {
  const skip = offset - event.offset;
  if (skip <= 0) return [event];
  if (skip >= event.bytes.length) return [];
  return [{ ...event, offset, bytes: event.bytes.subarray(skip) }];
}
