import type { GapEvent, Offsets, OutputEvent, OutputStream, ProcessEvent, StartEvent } from './events.ts';
import { type Block, HEAD_BYTES, type OutputStore, RECORD_HEAD_BYTES, STREAMS } from './output-store.ts';

/** Keeps the last output of a process, for readers that reconnect. It is bounded in bytes, including overhead. */
export class History implements Disposable {
  readonly #store: OutputStore;
  /** The store knows the process by this number. */
  readonly process: number;
  /** The blocks are in order, and output is appended to the last one. */
  readonly #blocks: Block[] = [];
  /** The slot has the bytes of all streams. It is null before the first output. */
  #slot: number | null = null;
  #sequence = 0;
  /** The next byte goes to `#at`, and the last block ends at `#end`. */
  #at = 0;
  #end = 0;
  /** The position of the last record, its stream, and the length of its bytes. */
  #record = 0;
  #stream = -1;
  #length = 0;
  #cost = 0;
  /** The store knows this cost. */
  #counted = 0;

  constructor(store: OutputStore) {
    this.#store = store;
    this.process = store.nextProcess();
  }

  /** Returns the memory in use, in bytes. */
  get cost(): number {
    return this.#cost;
  }

  /** Returns the offset of the first kept byte of a stream, or null when nothing is kept. */
  firstOffset(stream: OutputStream): number | null {
    const [first] = this.#blocks;
    return first ? this.#store.offsets(first)[stream] : null;
  }

  /** Keeps the bytes that follow `totals`, which are the bytes of all streams so far. */
  append(stream: OutputStream, bytes: Buffer, totals: Offsets): void {
    if (bytes.length === 0) return;
    this.#slot ??= this.#store.takeSlot(this.process);
    const number = STREAMS.indexOf(stream);
    for (let from = 0; from < bytes.length; ) {
      if (!this.#hasRoom(number) && !this.#open(stream, totals, from)) {
        // The kept output must have no gap.
        this.clear();
        break;
      }
      from += this.#write(number, bytes, from);
    }
    if (this.#slot !== null) this.#store.setTotal(this.#slot, number, totals[stream] + bytes.length);
    this.#store.changed(this, this.#cost - this.#counted);
    this.#counted = this.#cost;
  }

  /** Sets the bytes of all streams so far. */
  count(totals: Offsets): void {
    this.#slot ??= this.#store.takeSlot(this.process);
    if (this.#slot === null) return;
    for (const [index, stream] of STREAMS.entries()) this.#store.setTotal(this.#slot, index, totals[stream]);
  }

  /** Drops the kept output. */
  clear(): void {
    for (const block of this.#blocks.splice(0)) this.#store.releaseBlock(block);
    this.#at = this.#end = this.#cost = 0;
    this.#stream = -1;
    this.#store.shrink();
    this.#store.cleared(this, this.#counted);
    this.#counted = 0;
  }

  /** Drops everything, including the number of bytes. */
  [Symbol.dispose](): void {
    this.clear();
    if (this.#slot !== null) this.#store.releaseSlot(this.#slot);
    this.#slot = null;
  }

  /**
   * Returns the events for a reader that resumes at `from`. They are the start event with the offsets of the following
   * output, a gap event if requested bytes are no longer kept, and the kept output. `end` holds the offsets reached so
   * far.
   */
  resume(start: StartEvent, from: Offsets, end: Offsets): ProcessEvent[] {
    const begin = (stream: OutputStream) => Math.max(from[stream], this.firstOffset(stream) ?? end[stream]);
    const offsets = { stdout: begin('stdout'), stderr: begin('stderr'), pty: begin('pty') };
    const gone = offsets.stdout > from.stdout || offsets.stderr > from.stderr || offsets.pty > from.pty;
    const gap: GapEvent[] = gone ? [{ type: 'gap', from, to: offsets }] : [];
    return [{ ...start, offsets }, ...gap, ...this.#kept(offsets)];
  }

  /** Returns the kept output from these offsets on. It is copied, because blocks are reused. */
  #kept(from: Offsets): OutputEvent[] {
    const events: OutputEvent[] = [];
    const [first] = this.#blocks;
    if (!first) return events;
    const offsets = this.#store.offsets(first);
    for (const block of this.#blocks) {
      for (const { stream, bytes } of this.#store.records(block)) {
        const skip = Math.max(0, from[stream] - offsets[stream]);
        const offset = offsets[stream] + skip;
        offsets[stream] += bytes.length;
        if (skip < bytes.length)
          events.push({ type: 'output', stream, offset, bytes: Buffer.from(bytes.subarray(skip)) });
      }
    }
    return events;
  }

  #hasRoom(stream: number): boolean {
    return this.#at + (stream === this.#stream ? 0 : RECORD_HEAD_BYTES) < this.#end;
  }

  /** Opens a new block for the byte `from` after `totals`, and drops the first ones beyond the limit. */
  #open(stream: OutputStream, totals: Offsets, from: number): boolean {
    const offsets = { ...totals, [stream]: totals[stream] + from };
    while (this.#cost > 0 && this.#cost + this.#store.largeBytes > this.#store.limit) this.#dropFirst();
    const block =
      this.#store.limit >= this.#store.largeBytes
        ? this.#store.takeBlock(this.process, this.#sequence, offsets)
        : null;
    if (!block) return false;
    this.#sequence += 1;
    this.#blocks.push(block);
    this.#cost += block.size;
    this.#at = block.at + HEAD_BYTES;
    this.#end = block.at + block.size;
    this.#stream = -1;
    return true;
  }

  /** Writes as much as the block has room for. Returns the number of bytes. */
  #write(stream: number, bytes: Buffer, from: number): number {
    const block = this.#blocks.at(-1);
    if (!block) return 0;
    if (stream !== this.#stream) {
      this.#record = this.#at;
      this.#at += RECORD_HEAD_BYTES;
      this.#stream = stream;
      this.#length = 0;
    }
    const count = Math.min(this.#end - this.#at, bytes.length - from);
    const part = count === bytes.length ? bytes : bytes.subarray(from, from + count);
    this.#store.memory.bytes.set(part, this.#at);
    this.#at += count;
    this.#length += count;
    this.#store.announce(block, this.#record, stream, this.#length);
    return count;
  }

  #dropFirst(): void {
    const first = this.#blocks.shift();
    if (!first) return;
    this.#store.releaseBlock(first);
    this.#cost -= first.size;
  }
}
