import { spawnSync } from 'node:child_process';
import type { EventEmitter } from 'node:events';
import type { ReadStream, WriteStream } from 'node:tty';

/** The size of a terminal in cells. */
export interface ScreenSize {
  readonly cols: number;
  readonly rows: number;
}

type Keyboard = NodeJS.ReadableStream & Partial<Pick<ReadStream, 'isTTY' | 'setRawMode'>>;
type Screen = NodeJS.WritableStream & Partial<Pick<WriteStream, 'isTTY' | 'columns' | 'rows'>>;

/** The terminal of this process in raw mode, where every key is a byte, until it is disposed of. */
export class LocalTerminal implements Disposable {
  readonly #keyboard: Keyboard;
  readonly #screen: Screen & EventEmitter;
  #onResize: (() => void) | null = null;

  constructor(keyboard: Keyboard, screen: Screen) {
    this.#keyboard = keyboard;
    this.#screen = screen;
    keyboard.setRawMode?.(true);
    // Node leaves the output as it was, in which a line feed also returns to the left: the remote terminal has done that already.
    spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] });
    // However the program ends, the terminal is usable afterwards.
    process.once('exit', this.#restore);
  }

  get size(): ScreenSize {
    return { cols: this.#screen.columns || 80, rows: this.#screen.rows || 24 };
  }

  /** Calls `listener` for each change of the size. */
  onResize(listener: (size: ScreenSize) => void): void {
    this.#onResize = () => listener(this.size);
    this.#screen.on('resize', this.#onResize);
  }

  [Symbol.dispose](): void {
    if (this.#onResize) this.#screen.off('resize', this.#onResize);
    process.off('exit', this.#restore);
    this.#restore();
    this.#keyboard.pause();
  }

  readonly #restore = (): void => {
    this.#keyboard.setRawMode?.(false);
  };
}
