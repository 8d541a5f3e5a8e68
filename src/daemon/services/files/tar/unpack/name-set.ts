import type { BytePath } from '../../../../linux/paths/byte-path.ts';

const FIRST_CAPACITY = 1024;

/**
 * Holds a set of names, of each of which it keeps only a hash of 53 bits. This takes about a sixth of the memory of the
 * names themselves. The table uses open addressing.
 */
export class NameSet {
  #slots = new Float64Array(FIRST_CAPACITY);
  #count = 0;

  add(name: BytePath): void {
    if (this.#count * 2 > this.#slots.length) this.#grow();
    this.#insert(hashOf(name));
  }

  has(name: BytePath): boolean {
    const hash = hashOf(name);
    return this.#slots[this.#slotOf(hash)] === hash;
  }

  #insert(hash: number): void {
    const slot = this.#slotOf(hash);
    if (this.#slots[slot] === hash) return;
    this.#slots[slot] = hash;
    this.#count++;
  }

  /** Returns the slot that has the hash, or the free one for it. */
  #slotOf(hash: number): number {
    let slot = hash % this.#slots.length;
    while (this.#slots[slot] !== 0 && this.#slots[slot] !== hash) slot = (slot + 1) % this.#slots.length;
    return slot;
  }

  #grow(): void {
    const old = this.#slots;
    this.#slots = new Float64Array(old.length * 2);
    this.#count = 0;
    for (const hash of old) if (hash !== 0) this.#insert(hash);
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
