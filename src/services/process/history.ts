import type { GapEvent, Offsets, OutputEvent, OutputStream, ProcessEvent, StartEvent } from './events.ts';

interface Kept {
  readonly event: OutputEvent;
  /** Bytes of its stream before it. */
  readonly offset: number;
  readonly cost: number;
}

/** The last output of a process, for readers that come back: a queue that is bounded in bytes. */
export class History {
  readonly #limit: number;
  readonly #kept: Kept[] = [];
  #first = 0;
  #cost = 0;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  add(event: OutputEvent, offset: number, overhead: number): void {
    if (this.#limit === 0) return;
    const cost = event.bytes.length + overhead;
    this.#kept.push({ event, offset, cost });
    this.#cost += cost;
    while (this.#cost > this.#limit) this.#cost -= this.#kept[this.#first++]?.cost ?? 0;
    if (this.#first > 64 && this.#first * 2 > this.#kept.length) this.#cut();
  }

  /** Dropped entries are cut off many at a time, so that adding stays cheap. */
  #cut(): void {
    this.#kept.splice(0, this.#first);
    this.#first = 0;
  }

  /**
   * What a reader gets that comes back: the start with the offsets of what follows, a gap if some of what it asked
   * for is gone, and the kept bytes from the offsets on. `end` are the offsets reached.
   */
  resume(start: StartEvent, from: Offsets, end: Offsets): ProcessEvent[] {
    const kept = this.#kept.slice(this.#first);
    const begin = (stream: OutputStream) =>
      Math.max(from[stream], kept.find(({ event }) => event.stream === stream)?.offset ?? end[stream]);
    const offsets = { stdout: begin('stdout'), stderr: begin('stderr'), pty: begin('pty') };
    const gone = offsets.stdout > from.stdout || offsets.stderr > from.stderr || offsets.pty > from.pty;
    const gap: GapEvent[] = gone ? [{ type: 'gap', from, to: offsets }] : [];
    return [{ ...start, offsets }, ...gap, ...kept.flatMap((one) => tail(one, offsets[one.event.stream]))];
  }
}

/** What of an event lies at or behind `offset`. */
function tail({ event, offset: begin }: Kept, offset: number): OutputEvent[] {
  const skip = offset - begin;
  if (skip <= 0) return [event];
  if (skip >= event.bytes.length) return [];
  return [{ ...event, bytes: event.bytes.subarray(skip), encoded: null }];
}
