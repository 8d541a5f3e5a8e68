import { closeSync } from 'node:fs';
import { Area } from './area.ts';
import { createMemory, readMemory, releaseTail, type SharedMemory } from './shared-memory.ts';

/**
 * The bytes of a slot, which has the length of its text (u32; 0 when the slot is free) and then the text. Most records of a
 * process that has ended fit.
 */
const SLOT_BYTES = 1024;
const TEXT_AT = 4;
const SLOTS = 65_536;
/** The bytes before the slots. They begin with the end of the slots that were ever used (f64). */
const HEAD_BYTES = 64;

/** Keeps texts in shared memory. Whenever this program is killed, each text is there as a whole or not at all. */
export class RecordMemory {
  readonly #memory: SharedMemory = createMemory(HEAD_BYTES + SLOT_BYTES * SLOTS);
  readonly #slots = new Area(HEAD_BYTES, SLOT_BYTES, SLOTS);
  readonly #mark = (end: number) => this.#memory.bytes.writeDoubleLE(end);

  /** The descriptor of the memory; null when it cannot be handed over. */
  get descriptor(): number | null {
    return this.#memory.descriptor;
  }

  /** Adds a text; returns its slot, or null when the text is too long or all slots are in use. */
  put(text: string): number | null {
    const length = Buffer.byteLength(text);
    if (length > SLOT_BYTES - TEXT_AT) return null;
    const slot = this.#slots.take(this.#mark);
    if (slot === null) return null;
    const { bytes } = this.#memory;
    bytes.write(text, slot + TEXT_AT);
    bytes.writeUInt32LE(length, slot);
    return slot;
  }

  remove(slot: number): void {
    this.#memory.bytes.writeUInt32LE(0, slot);
    this.#slots.release(slot);
    // The memory of a burst is given back at its end. This sorts the free slots, so it is not done at each removal.
    if (this.#slots.usedBytes === 0) releaseTail(this.#memory, this.#slots.shrink());
  }
}

/** Returns the texts that another program has put into its memory, and closes the descriptor. Throws read(2)'s errors. */
export function textsIn(descriptor: number): string[] {
  const head = Buffer.alloc(HEAD_BYTES);
  readMemory(descriptor, head, 0, HEAD_BYTES);
  const end = head.readDoubleLE();
  const bytes = Buffer.alloc(end);
  readMemory(descriptor, bytes, 0, end);
  closeSync(descriptor);
  const texts: string[] = [];
  for (let slot = HEAD_BYTES; slot < end; slot += SLOT_BYTES) {
    const length = bytes.readUInt32LE(slot);
    if (length > 0) texts.push(bytes.toString('utf8', slot + TEXT_AT, slot + TEXT_AT + length));
  }
  return texts;
}
