/** The user asks for one of these actions by a key after the escape key. */
export type EscapeAction = 'detach' | 'kill' | 'help';

const ACTIONS: Readonly<Record<string, EscapeAction>> = {
  d: 'detach',
  '.': 'detach',
  k: 'kill',
  '?': 'help',
};

/** The result of typed input: bytes for the process, and at most one action after them. */
export interface Typed {
  readonly bytes: Buffer;
  readonly action: EscapeAction | null;
}

/**
 * Finds the escape key in typed input. Typing the key twice sends it once. Before a key without an action, it is sent too.
 * Input after an action is dropped.
 */
export class EscapeKey {
  readonly #key: number;
  #isPending = false;

  /** @param key the byte of a control character */
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

/** Returns the byte of a control character such as `^]` or `^A`, or null for any other text. */
export function controlKey(text: string): number | null {
  const [, letter] = /^\^([@-_a-z])$/.exec(text) ?? [];
  return letter === undefined ? null : letter.toUpperCase().charCodeAt(0) & 0x1f;
}

/** Returns the name of a control character, such as `^]`. */
export function nameOfKey(key: number): string {
  return `^${String.fromCharCode(key | 0x40)}`;
}
