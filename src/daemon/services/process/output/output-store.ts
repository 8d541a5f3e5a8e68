import { Area } from '../../../linux/memory/area.ts';
import { createMemory, releaseTail, type SharedMemory } from '../../../linux/memory/shared-memory.ts';
import type { Offsets, OutputStream } from './events.ts';

/**
 * The kept output of all processes is in memory that survives the daemon. It has a head, slots, small blocks and large
 * blocks. A slot has the number of a process and the bytes of its streams so far. A block has output of one process, as
 * records in the order of the writes. The memory is valid at every moment, because bytes are written before they are
 * announced.
 *
 * The head has the number of slots, the number and the size of small blocks, and the size of large blocks (u32 each), and is
 * unused up to byte 32. Then come the ends of the slots, small blocks and large
 * blocks that have ever been used (f64 each), and it is unused up to byte 64. A slot has the process (u32, 0 if it is
 * free), 4 unused bytes, and the bytes of stdout, stderr and the terminal (f64 each). A block has the process (u32, 0
 * if it is free), a sequence number (u32), the used bytes (u32), 4 unused bytes, the offsets of the three streams at
 * its start (f64 each), and records. A record has the stream and the length in a u32 (two bits and 30 bits), and the
 * bytes.
 */
export const STORE_HEAD_BYTES = 64;
export const MARKS_AT = 32;
export const SLOT_BYTES = 32;
export const HEAD_BYTES = 40;
export const RECORD_HEAD_BYTES = 4;
const USED_AT = 8;
export const OFFSETS_AT = 16;
export const TOTALS_AT = 8;
const LENGTH_BITS = 30;
const LENGTH_MASK = 2 ** LENGTH_BITS - 1;

const SLOTS = 32_768;
/** Most processes write little, so their first block is small. */
const SMALL_BLOCKS = 16_384;
const SMALL_BYTES = 1024;
/** A read of 64 KiB fits into a block. */
const LARGE_BYTES = 64 * 1024 + 64;
const LEAST_BYTES = 256;
const ALIGNMENT = 64;
/** The limit of one process has at least this many blocks, because whole blocks are dropped. */
const BLOCKS_PER_LIMIT = 15;
/** This much free memory at the end is returned to the kernel. */
const RELEASED_BYTES = 4 * 1024 * 1024;

export const STREAMS: readonly OutputStream[] = ['stdout', 'stderr', 'pty'];

/** Notes the end of the part of an area that has ever been used. */
type Mark = (end: number) => void;

/** Describes a block by its position and its size, in bytes. */
export interface Block {
  readonly at: number;
  readonly size: number;
}

/** All histories together may take this many times the limit of one, but at most 4 GiB if there are several. */
const HISTORIES = 64;
const MOST_HISTORY_BYTES = 2 ** 32;

/** The kept output of one process can be cleared to free memory. */
interface Clearable {
  clear(): void;
}

/** Keeps the output of all processes and bounds its memory. It clears first what was written least recently. */
export class OutputStore {
  /** One process takes at most this many bytes. */
  readonly limit: number;
  /** A large block has this many bytes. */
  readonly largeBytes: number;
  readonly memory: SharedMemory;
  readonly #smallBytes: number;
  readonly #slots: Area;
  readonly #small: Area;
  readonly #large: Area;
  readonly #view: DataView;
  readonly #marks: readonly [Mark, Mark, Mark];
  readonly #total: number;
  /** This is in the order of the last write. */
  readonly #kept = new Set<Clearable>();
  #latest: Clearable | null = null;
  #used = 0;
  /** The number of the last process. */
  #process = 0;

  /** `limitBytes` bounds one process, and `totalBytes` all of them. */
  constructor(limitBytes: number, totalBytes = totalOf(limitBytes)) {
    this.limit = limitBytes;
    this.#total = totalBytes;
    const wanted = Math.min(LARGE_BYTES, limitBytes / BLOCKS_PER_LIMIT) & -ALIGNMENT;
    this.largeBytes = Math.max(wanted, LEAST_BYTES);
    this.#smallBytes = Math.min(SMALL_BYTES, this.largeBytes);
    const slots = new Area(STORE_HEAD_BYTES, SLOT_BYTES, SLOTS);
    const small = new Area(slots.end, this.#smallBytes, SMALL_BLOCKS);
    // A write is counted when it is done, so there is room for one more limit.
    const count = Math.ceil((totalBytes + limitBytes) / this.largeBytes) + 1;
    const large = new Area(small.end, this.largeBytes, count);
    this.memory = createMemory(large.end);
    const view = viewOf(this.memory.bytes);
    const head = [slots.count, small.count, small.size, large.size];
    for (const [index, value] of head.entries()) view.setUint32(4 * index, value, true);
    const mark = (area: number) => (end: number) => view.setFloat64(MARKS_AT + 8 * area, end, true);
    this.#marks = [mark(0), mark(1), mark(2)];
    [this.#slots, this.#small, this.#large, this.#view] = [slots, small, large, view];
  }

  nextProcess(): number {
    this.#process += 1;
    return this.#process;
  }

  get used(): number {
    return this.#used;
  }

  /** Accounts for a write to `history` that took `bytes` more memory. */
  changed(history: Clearable, bytes: number): void {
    this.#used += bytes;
    if (this.#latest !== history) {
      this.#kept.delete(history);
      this.#kept.add(history);
      this.#latest = history;
    }
    for (const silent of this.#kept) {
      if (this.#used <= this.#total || silent === history) return;
      silent.clear();
    }
  }

  /** Accounts for `history`, which was cleared of `bytes`. */
  cleared(history: Clearable, bytes: number): void {
    this.#used -= bytes;
    this.#kept.delete(history);
    if (this.#latest === history) this.#latest = null;
  }

  /** Returns a slot for a process, or null when there are too many. */
  takeSlot(process: number): number | null {
    const bytes = this.memory.bytes;
    const slot = this.#slots.take(this.#marks[0]);
    if (slot === null) return null;
    bytes.fill(0, slot, slot + SLOT_BYTES);
    this.#view.setUint32(slot, process, true);
    return slot;
  }

  releaseSlot(slot: number): void {
    this.#view.setUint32(slot, 0, true);
    this.#slots.release(slot);
  }

  /** Sets how many bytes a stream has had. `stream` is an index of `STREAMS`. */
  setTotal(slot: number, stream: number, bytes: number): void {
    this.#view.setFloat64(slot + TOTALS_AT + 8 * stream, bytes, true);
  }

  /** Returns a block that begins at the offsets `from`, or null when none is free. The limits are below the capacity. */
  takeBlock(process: number, sequence: number, from: Offsets): Block | null {
    const bytes = this.memory.bytes;
    const small = sequence === 0 ? this.#small.take(this.#marks[1]) : null;
    const at = small ?? this.#large.take(this.#marks[2]);
    if (at === null) return null;
    bytes.fill(0, at, at + HEAD_BYTES);
    const view = this.#view;
    view.setUint32(at + 4, sequence, true);
    for (const [index, stream] of STREAMS.entries())
      view.setFloat64(at + OFFSETS_AT + 8 * index, from[stream], true);
    view.setUint32(at, process, true);
    return { at, size: small === null ? this.largeBytes : this.#smallBytes };
  }

  releaseBlock({ at }: Block): void {
    this.#view.setUint32(at, 0, true);
    const area = at < this.#small.end ? this.#small : this.#large;
    area.release(at);
  }

  /** Writes the head of a record at `at`, and the used bytes of its block. The record's bytes must be written before. */
  announce(block: Block, at: number, stream: number, length: number): void {
    this.#view.setUint32(at, (stream << LENGTH_BITS) | length, true);
    this.#view.setUint32(block.at + USED_AT, at + RECORD_HEAD_BYTES + length - block.at - HEAD_BYTES, true);
  }

  /** Returns the offsets of all streams at the start of a block. */
  offsets({ at }: Block): Record<OutputStream, number> {
    return offsetsAt(this.#view, at + OFFSETS_AT);
  }

  /** Returns the records of a block, in order. Their bytes are those in the store. */
  records({ at }: Block): Generator<OutputRecord> {
    return recordsAt(this.memory.bytes, this.#view, at);
  }

  /** Returns free memory at the end to the kernel, if it is much. */
  shrink(): void {
    const large = this.#large;
    if (large.touchedBytes - large.usedBytes * 2 >= RELEASED_BYTES) releaseTail(this.memory, large.shrink());
  }
}

function totalOf(limitBytes: number): number {
  return Math.max(limitBytes, Math.min(HISTORIES * limitBytes, MOST_HISTORY_BYTES));
}

/** Output of one stream, which is at least one byte. */
export interface OutputRecord {
  readonly stream: OutputStream;
  readonly bytes: Buffer;
}

export function viewOf({ buffer, byteOffset, length }: Buffer): DataView {
  return new DataView(buffer, byteOffset, length);
}

/** Returns the records of the block at `at`. */
export function* recordsAt(bytes: Buffer, view: DataView, at: number): Generator<OutputRecord> {
  const end = at + HEAD_BYTES + view.getUint32(at + USED_AT, true);
  for (let place = at + HEAD_BYTES; place < end; ) {
    const head = view.getUint32(place, true);
    const stream = STREAMS[head >>> LENGTH_BITS];
    const start = place + RECORD_HEAD_BYTES;
    // The last record may have become longer since the used bytes were written.
    place = Math.min(start + (head & LENGTH_MASK), end);
    if (stream) yield { stream, bytes: bytes.subarray(start, place) };
  }
}

/** Returns the offsets of the three streams that begin at `at`. */
export function offsetsAt(view: DataView, at: number): Record<OutputStream, number> {
  const [stdout, stderr, pty] = [0, 8, 16].map((index) => view.getFloat64(at + index, true));
  return { stdout: stdout ?? 0, stderr: stderr ?? 0, pty: pty ?? 0 };
}
