/** Programs turn these modes on, which a shell behind them does not expect, and these sequences turn them off. */
const UNWANTED: ReadonlyMap<string, string> = new Map(
  [
    // Keys of the cursor, reports of the mouse, of the focus and of pastes, and the screens that cover the shell's.
    ...['1', '9', '1000', '1001', '1002', '1003', '1004', '1005', '1006', '1015', '1016', '2004'],
    ...['47', '1047', '1049'],
  ].map((mode) => [mode, `\x1b[?${mode}l`]),
);
/** These modes are on at first, so turning them off is what is undone: the cursor, and lines that wrap. */
const WANTED: ReadonlyMap<string, string> = new Map(['25', '7'].map((mode) => [mode, `\x1b[?${mode}h`]));

/** Other changes: what makes one, which of these take it back, and what undoes it. */
const OTHERS: readonly (readonly [name: string, makes: RegExp, takesBack: RegExp, undo: string])[] = [
  ['keypad', /^[=>]$/, /^>/, '\x1b>'],
  ['keyboard', /^\[[>=<][\d;]*u$/, /^\[</, '\x1b[<9u'],
  ['style', /^\[[\d;:]*m$/, /^\[0?m/, '\x1b[m'],
];

const ESCAPE = '\x1b';
/** Everything of the above, and both resets. The escape character is no part of the match that is looked at. */
const SEQUENCE = new RegExp(`${ESCAPE}([=>c]|\\[!p|\\[[?>=<]?[\\d;:]{0,64}[hlmu])`, 'g');
/** A sequence that is split has at most so many characters. */
const LONGEST = 80;

/** Follows the output of a program, and finds what it leaves changed in the terminal. Sources: ECMA-48, xterm's ctlseqs. */
export class TerminalModes {
  /** The keys are modes that differ from those of a shell, and the values undo them. */
  readonly #changed = new Map<string, string>();
  #rest = '';

  read(data: Uint8Array): void {
    const text = this.#rest + Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('latin1');
    let end = 0;
    for (const found of text.matchAll(SEQUENCE)) {
      end = found.index + found[0].length;
      this.#take(found[1] ?? '');
    }
    const begun = text.lastIndexOf(ESCAPE);
    this.#rest = begun >= end && text.length - begun < LONGEST ? text.slice(begun) : '';
  }

  /** Returns the sequences that make the terminal as it was. */
  get undo(): string {
    return [...this.#changed.values()].join('');
  }

  #take(sequence: string): void {
    if (sequence === 'c' || sequence === '[!p') this.#changed.clear();
    const [, modes, state] = /^\[\?([\d;]+)([hl])$/.exec(sequence) ?? [];
    for (const mode of modes?.split(';') ?? [])
      this.#set(mode, (state === 'h' ? UNWANTED : WANTED).get(mode) ?? null);
    for (const [name, makes, takesBack, undo] of OTHERS)
      if (makes.test(sequence)) this.#set(name, takesBack.test(sequence) ? null : undo);
  }

  /** Notes what undoes a change; null: nothing has to be undone any more. */
  #set(name: string, undo: string | null): void {
    if (undo === null) this.#changed.delete(name);
    else this.#changed.set(name, undo);
  }
}
