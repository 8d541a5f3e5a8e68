/** What keys after the escape key ask for. */
export type EscapeAction = 'detach' | 'kill' | 'help';

const ACTIONS: Readonly<Record<string, EscapeAction>> = {
  d: 'detach',
  '.': 'detach',
  k: 'kill',
  '?': 'help',
};

/** What the user typed: bytes for the process, and at most one action, which comes after them. */
export interface Typed {
  readonly bytes: Buffer;
  readonly action: EscapeAction | null;
}

/**
 * Finds the escape key in what is typed. The key twice sends it once; before any other character it is sent with it. What comes
 * after an action is dropped.
 */
export class EscapeKey {
  readonly #key: number;
  #isPending = false;

  /** `key`: a control character, as its byte. */
  constructor(key: number) {
    this.#key = key;
  }

  read(input: Buffer): Typed {
    const pieces: Buffer[] = [];
    let at = 0;
    while (at < input.length) {
      if (this.#isPending) {
        this.#isPending = false;
        const byte = input[at] ?? 0;
        const action = ACTIONS[String.fromCharCode(byte)];
        if (action) return { bytes: Buffer.concat(pieces), action };
        pieces.push(byte === this.#key ? Buffer.of(byte) : Buffer.of(this.#key, byte));
        at++;
      }
      const found = input.indexOf(this.#key, at);
      this.#isPending = found >= 0;
      pieces.push(input.subarray(at, found < 0 ? input.length : found));
      at = found < 0 ? input.length : found + 1;
    }
    return { bytes: Buffer.concat(pieces), action: null };
  }
}

/** `^]` or `^A` as its byte; null for anything else. */
export function controlKey(text: string): number | null {
  const [, letter] = /^\^([@-_a-z])$/.exec(text) ?? [];
  return letter === undefined ? null : letter.toUpperCase().charCodeAt(0) & 0x1f;
}

/** How a control character is written: `^]`. */
export function nameOfKey(key: number): string {
  return `^${String.fromCharCode(key | 0x40)}`;
}
