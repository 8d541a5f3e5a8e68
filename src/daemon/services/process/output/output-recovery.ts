import { readSync } from 'node:fs';
import type { Offsets, OutputStream } from './events.ts';
import type { History } from './history.ts';
import {
  HEAD_BYTES,
  MARKS_AT,
  OFFSETS_AT,
  type OutputRecord,
  offsetsAt,
  recordsAt,
  SLOT_BYTES,
  STORE_HEAD_BYTES,
  TOTALS_AT,
  viewOf,
} from './output-store.ts';

/** The kept output of one process of an earlier program. */
export interface KeptOutput {
  readonly from: Offsets;
  /** Reads the output one block at a time. The bytes of a record are valid until the next one is taken. */
  readonly records: () => Iterable<OutputRecord>;
}

interface KeptBlock {
  readonly at: number;
  readonly size: number;
  readonly sequence: number;
  readonly from: Offsets;
}

/**
 * Returns what an `OutputStore` has kept in a file in memory, by number of the process. It also works when the program
 * was killed while it wrote. The descriptor must stay open while the result is used. Throws read(2)'s errors.
 */
export function recoverOutput(descriptor: number): Map<number, KeptOutput> {
  const head = Buffer.alloc(STORE_HEAD_BYTES);
  readAt(descriptor, head, 0);
  const numbers = Array.from({ length: 4 }, (_, index) => head.readUInt32LE(4 * index));
  const [slots = 0, smallCount = 0, smallBytes = 0, largeBytes = 0] = numbers;
  const small = STORE_HEAD_BYTES + slots * SLOT_BYTES;
  const large = small + smallCount * smallBytes;
  // Memory that was never used is not read.
  const ends = [0, 8, 16].map((mark) => head.readDoubleLE(MARKS_AT + mark));
  const [slotsEnd = 0, smallEnd = 0, largeEnd = 0] = ends;
  const blocks = Map.groupBy(
    [
      ...blocksOf(descriptor, small, smallBytes, smallEnd),
      ...blocksOf(descriptor, large, largeBytes, largeEnd),
    ],
    ({ process }) => process,
  );
  const kept = new Map<number, KeptOutput>();
  const slot = Buffer.alloc(SLOT_BYTES);
  // All processes share one buffer, because their blocks together may be as large as all that is kept.
  const room = Buffer.alloc(largeBytes);
  for (let at = STORE_HEAD_BYTES; at < slotsEnd; at += SLOT_BYTES) {
    readAt(descriptor, slot, at);
    const process = slot.readUInt32LE(0);
    if (process === 0) continue;
    const sorted = (blocks.get(process) ?? []).toSorted((a, b) => a.sequence - b.sequence);
    const from = sorted[0]?.from ?? offsetsAt(viewOf(slot), TOTALS_AT);
    kept.set(process, { from, records: () => recordsIn(descriptor, sorted, room) });
  }
  return kept;
}

/** Returns the blocks of an area that are in use. */
function* blocksOf(
  descriptor: number,
  start: number,
  size: number,
  end: number,
): Generator<KeptBlock & { readonly process: number }> {
  const head = Buffer.alloc(HEAD_BYTES);
  for (let at = start; at < end; at += size) {
    readAt(descriptor, head, at);
    const [process, sequence] = [head.readUInt32LE(0), head.readUInt32LE(4)];
    if (process !== 0) yield { at, size, process, sequence, from: offsetsAt(viewOf(head), OFFSETS_AT) };
  }
}

function* recordsIn(descriptor: number, blocks: readonly KeptBlock[], room: Buffer): Generator<OutputRecord> {
  for (const { at, size } of blocks) {
    const block = room.subarray(0, size);
    readAt(descriptor, block, at);
    yield* recordsAt(block, viewOf(block), 0);
  }
}

/** Reads with zeros where the file is shorter, as it is for a moment whenever memory is returned. */
function readAt(descriptor: number, bytes: Buffer, position: number): void {
  bytes.fill(0, readSync(descriptor, bytes, 0, bytes.length, position));
}

/**
 * Appends recovered output to an empty history, and passes it to `onOutput`. Returns the bytes of all streams so far. They are
 * more than were counted if the program was killed after it had written bytes and before it counted them.
 */
export function restoreHistory(
  history: History,
  { from, records }: KeptOutput,
  onOutput: (stream: OutputStream, bytes: Buffer) => void,
): Record<OutputStream, number> {
  const offsets = { ...from };
  for (const { stream, bytes } of records()) {
    history.append(stream, bytes, offsets);
    onOutput(stream, bytes);
    offsets[stream] += bytes.length;
  }
  history.count(offsets);
  return offsets;
}
