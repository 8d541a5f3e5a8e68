import type { PrintStream } from '../output/printer.ts';
import { beforeEnd } from './endings.ts';

/** The other screen of a terminal, without a cursor. What was on the terminal before is there again when it is disposed of. */
export class FullScreen implements Disposable {
  readonly #stream: PrintStream;
  readonly #ending: Disposable;

  constructor(stream: PrintStream) {
    this.#stream = stream;
    this.#ending = beforeEnd(this.#leave);
    stream.write('\x1b[?1049h\x1b[?25l');
  }

  /** The number of lines. */
  get rows(): number {
    return this.#stream.rows || 24;
  }

  /** Shows lines instead of those before, without an empty screen between. */
  show(lines: readonly string[]): void {
    const shown = lines.slice(0, this.rows).map((line) => `${line}\x1b[K`);
    this.#stream.write(`\x1b[H${shown.join('\r\n')}\x1b[J`);
  }

  [Symbol.dispose](): void {
    this.#ending[Symbol.dispose]();
    this.#leave();
  }

  readonly #leave = (): void => {
    this.#stream.write('\x1b[?25h\x1b[?1049l');
  };
}
