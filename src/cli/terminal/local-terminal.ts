import { spawnSync } from 'node:child_process';
import type { EventEmitter } from 'node:events';
import type { ReadStream, WriteStream } from 'node:tty';
import { beforeEnd } from './endings.ts';
import { TerminalModes } from './modes.ts';

/** The size of a terminal, in cells. */
export interface ScreenSize {
  readonly cols: number;
  readonly rows: number;
}

type Keyboard = NodeJS.ReadableStream & Partial<Pick<ReadStream, 'isTTY' | 'setRawMode'>>;
type Screen = NodeJS.WritableStream & Partial<Pick<WriteStream, 'isTTY' | 'columns' | 'rows'>>;

/**
 * The terminal of this process in raw mode, in which every key is a byte, until it is disposed of. Then it is as before, whatever a
 * program has made of it: its screen, its cursor, and what it reports of the mouse.
 */
export class LocalTerminal implements Disposable {
  readonly #keyboard: Keyboard;
  readonly #screen: Screen & EventEmitter;
  readonly #modes = new TerminalModes();
  readonly #ending: Disposable;
  #onResize: (() => void) | null = null;

  constructor(keyboard: Keyboard, screen: Screen) {
    this.#keyboard = keyboard;
    this.#screen = screen;
    // The terminal must be usable again, however the program ends, also in the middle of what follows.
    this.#ending = beforeEnd(this.#restore);
    keyboard.setRawMode?.(true);
    // Node leaves output processing on, which adds a carriage return to each line feed. The remote terminal has already done
    // that.
    spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] });
  }

  /** Must be called with all that a program writes to the terminal. */
  follow(output: Uint8Array): void {
    this.#modes.read(output);
  }

  get size(): ScreenSize {
    return { cols: this.#screen.columns || 80, rows: this.#screen.rows || 24 };
  }

  /** Calls `listener` with the new size after each change. */
  onResize(listener: (size: ScreenSize) => void): void {
    this.#onResize = () => listener(this.size);
    this.#screen.on('resize', this.#onResize);
  }

  [Symbol.dispose](): void {
    if (this.#onResize) this.#screen.off('resize', this.#onResize);
    this.#ending[Symbol.dispose]();
    this.#restore();
    this.#keyboard.pause();
  }

  readonly #restore = (): void => {
    // Node writes to terminals synchronously, so this is written before the process exits.
    this.#screen.write(this.#modes.undo);
    this.#keyboard.setRawMode?.(false);
  };
}
