import { readMemory } from '../../os/shared-memory.ts';
import type { Offsets } from './events.ts';
import type { History } from './history.ts';
import {
  FORMAT,
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
  /** Bytes of all streams so far. */
  readonly totals: Offsets;
  /** Offsets of the first kept bytes. */
  readonly from: Offsets;
  readonly records: readonly OutputRecord[];
}

interface KeptBlock {
  readonly at: number;
  readonly sequence: number;
}

/**
 * What an `OutputStore` has kept in a file in memory, by number of the process, also when its program was killed while it
 * wrote. Null for a format of another version. Throws read(2)'s errors.
 */
export function recoverOutput(descriptor: number): Map<number, KeptOutput> | null {
  const head = Buffer.alloc(STORE_HEAD_BYTES);
  readMemory(descriptor, head, 0, STORE_HEAD_BYTES);
  const numbers = Array.from({ length: 6 }, (_, index) => head.readUInt32LE(4 * index));
  const [format, slots = 0, smallCount = 0, smallBytes = 0, largeCount = 0, largeBytes = 0] = numbers;
  if (format !== FORMAT) return null;
  const small = STORE_HEAD_BYTES + slots * SLOT_BYTES;
  const large = small + smallCount * smallBytes;
  // What was never used is not read, and takes no memory here either.
  const bytes = Buffer.alloc(large + largeCount * largeBytes);
  const ends = [0, 8, 16].map((mark) => head.readDoubleLE(MARKS_AT + mark));
  const [slotsEnd = 0, smallEnd = 0, largeEnd = 0] = ends;
  readMemory(descriptor, bytes, STORE_HEAD_BYTES, slotsEnd);
  readMemory(descriptor, bytes, small, smallEnd);
  readMemory(descriptor, bytes, large, largeEnd);

  const view = viewOf(bytes);
  const blocks = new Map<number, KeptBlock[]>();
  collect(view, small, smallBytes, smallEnd, blocks);
  collect(view, large, largeBytes, largeEnd, blocks);
  const kept = new Map<number, KeptOutput>();
  for (let slot = STORE_HEAD_BYTES; slot < slotsEnd; slot += SLOT_BYTES) {
    const process = view.getUint32(slot, true);
    if (process === 0) continue;
    kept.set(process, outputOf(bytes, view, offsetsAt(view, slot + TOTALS_AT), blocks.get(process) ?? []));
  }
  return kept;
}

/** Adds the blocks of an area to those of their processes. */
function collect(
  view: DataView,
  start: number,
  size: number,
  end: number,
  blocks: Map<number, KeptBlock[]>,
): void {
  for (let at = start; at < end; at += size) {
    const process = view.getUint32(at, true);
    if (process === 0) continue;
    const block = { at, sequence: view.getUint32(at + 4, true) };
    const known = blocks.get(process);
    if (known) known.push(block);
    else blocks.set(process, [block]);
  }
}

function outputOf(bytes: Buffer, view: DataView, counted: Offsets, blocks: readonly KeptBlock[]): KeptOutput {
  const sorted = blocks.toSorted((a, b) => a.sequence - b.sequence);
  const [first] = sorted;
  if (!first) return { totals: counted, from: counted, records: [] };
  const from = offsetsAt(view, first.at + OFFSETS_AT);
  const records = sorted.flatMap(({ at }) => [...recordsAt(bytes, view, at)]);
  // Larger than counted if the program was killed after it had written bytes and before it counted them.
  const totals = { ...from };
  for (const { stream, bytes } of records) totals[stream] += bytes.length;
  return { totals, from, records };
}

/** Appends recovered output to a history that is empty. */
export function restoreHistory(history: History, { from, totals, records }: KeptOutput): void {
  const offsets = { ...from };
  for (const { stream, bytes } of records) {
    history.append(stream, bytes, offsets);
    offsets[stream] += bytes.length;
  }
  history.count(totals);
}
