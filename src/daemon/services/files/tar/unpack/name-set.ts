import type { BytePath } from '../../../../linux/paths/byte-path.ts';

/** The names are in so many tables, so that the growth of one takes a small part of a turn of the event loop. */
const TABLES = 256;
const FIRST_CAPACITY = 16;

/**
 * Holds a set of names, of each of which it keeps only a hash of 53 bits. This takes about a sixth of the memory of the
 * names themselves.
 */
export class NameSet {
  readonly #tables = Array.from({ length: TABLES }, () => new HashTable());

  add(name: BytePath): void {
    const hash = hashOf(name);
    this.#tableOf(hash).add(hash);
  }

  has(name: BytePath): boolean {
    const hash = hashOf(name);
    return this.#tableOf(hash).has(hash);
  }

  #tableOf(hash: number): HashTable {
    return this.#tables[hash % TABLES] ?? new HashTable();
  }
}

/** Holds a set of hashes. The table uses open addressing. */
class HashTable {
  #slots = new Float64Array(FIRST_CAPACITY);
  #count = 0;

  add(hash: number): void {
    if (this.#count * 2 > this.#slots.length) this.#grow();
    const slot = this.#slotOf(hash);
    if (this.#slots[slot] === hash) return;
    this.#slots[slot] = hash;
    this.#count++;
  }

  has(hash: number): boolean {
    return this.#slots[this.#slotOf(hash)] === hash;
  }

  /** Returns the slot that has the hash, or the free one for it. */
  #slotOf(hash: number): number {
    // The last digits are the same for the whole table.
    let slot = Math.floor(hash / TABLES) % this.#slots.length;
    while (this.#slots[slot] !== 0 && this.#slots[slot] !== hash) slot = (slot + 1) % this.#slots.length;
    return slot;
  }

  #grow(): void {
    const old = this.#slots;
    this.#slots = new Float64Array(old.length * 2);
    this.#count = 0;
    for (const hash of old) if (hash !== 0) this.add(hash);
  }
}

/** Returns a hash that is never 0, because 0 marks a free slot. It consists of two hashes, of 32 and 21 bits. */
function hashOf(name: BytePath): number {
  let low = 0x811c9dc5;
  let high = 0x01000193;
  for (let index = 0; index < name.length; index++) {
    const byte = name.charCodeAt(index);
    low = Math.imul(low ^ byte, 0x01000193);
    high = Math.imul(high ^ (byte + index), 0x85ebca6b);
    high ^= high >>> 13;
  }
  return (high >>> 11) * 2 ** 32 + (low >>> 0) || 1;
}
