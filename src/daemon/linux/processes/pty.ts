import { closeSync, constants, fchmodSync, fchownSync, openSync } from 'node:fs';
import { EnvdError } from '../../../base/errors.ts';
import type { Owner } from '../files/place.ts';
import { native } from '../system/native.ts';
import { guarded } from './guarded.ts';
import { InputQueue } from './input-queue.ts';
import type { ReadEnd } from './pipe-ends.ts';

/** The size of a terminal in character cells. */
export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

/** The descriptors of the two sides of a terminal. */
export interface TerminalEnds {
  readonly master: number;
  readonly slave: number;
}

/** The kernel holds less than this of a terminal's output, some 20 KiB. Source: drivers/tty/pty.c and n_tty.c. */
const DRAIN_BYTES = 64 * 1024;
/** login(1) sets the same mode. */
const TERMINAL_MODE = 0o620;

/** Owns a pseudoterminal, on whose `slave` `spawn` starts the child (docs/decisions/004-starts.md). */
export class Terminal implements Disposable {
  /** The slave side blocks. It stays open so that the master does not hang up before it has been drained. */
  readonly slave: number;
  /** The input never blocks the event loop, even if the program does not read. */
  readonly input: InputQueue;
  readonly #output: ReadEnd;
  #size: TerminalSize | null;
  /** The terminal has another size than this for a moment. */
  #distortion: Disposable | null = null;
  #closed = false;

  /**
   * Opens a terminal that `owner` owns, as after a login, so that programs can open it by name. `read` gets its master.
   * Throws `resource_exhausted` when the kernel has no more terminals, and `invalid_argument` for a size of 0.
   */
  static open(size: TerminalSize, owner: Owner, read: (master: number) => ReadEnd): Terminal {
    checkSize(size);
    const { master, slave } = openTerminal(size, owner);
    try {
      return new Terminal(read(master), slave, size);
    } catch (error) {
      closeSync(slave);
      closeSync(master);
      throw error;
    }
  }

  /** The terminal owns `output` and `slave`. `size` is null if it is not known. */
  constructor(output: ReadEnd, slave: number, size: TerminalSize | null) {
    this.#output = output;
    this.#size = size;
    this.input = new InputQueue(output.descriptor, false, output.cgroup);
    this.slave = slave;
    // The output closes early when the poller could not allocate memory (ENOMEM).
    void output.closed.then(() => this[Symbol.dispose]());
  }

  /** Returns the terminal's descriptors, or null when it is closed. */
  get ends(): TerminalEnds | null {
    return this.#closed ? null : { master: this.#output.descriptor, slave: this.slave };
  }

  setPaused(paused: boolean): void {
    this.#output.setPaused(paused);
  }

  /** Returns the size that was set last, or null if it is not known. */
  get size(): TerminalSize | null {
    return this.#size;
  }

  /** Sets the window size. The kernel sends SIGWINCH to the foreground process group. */
  resize(size: TerminalSize): void {
    checkSize(size);
    if (this.#closed) throw new EnvdError('failed_precondition', 'cannot resize: the terminal is closed');
    const isSame = size.cols === this.#size?.cols && size.rows === this.#size.rows;
    this.#size = size;
    // Otherwise the program would find no change, and would not draw itself.
    if (this.#distortion && isSame) return;
    this.#distortion = null;
    this.#apply(size);
  }

  /**
   * Sets another size until the result is disposed of, because programs draw themselves again when the size changes. Returns null if
   * the terminal has another size already, or if its own is not known.
   */
  distort(): Disposable | null {
    if (this.#closed || this.#distortion || this.#size === null) return null;
    const { cols, rows } = this.#size;
    const distortion = { [Symbol.dispose]: () => this.#restore(distortion) };
    this.#distortion = distortion;
    // A program that draws fewer rows writes nothing beyond the screens of its viewers.
    this.#apply({ cols, rows: rows > 1 ? rows - 1 : 2 });
    return distortion;
  }

  /** Undoes a distortion, unless `resize` has ended it. */
  #restore(distortion: Disposable): void {
    if (this.#closed || this.#distortion !== distortion || this.#size === null) return;
    this.#distortion = null;
    this.#apply(this.#size);
  }

  #apply({ cols, rows }: TerminalSize): void {
    const { descriptor, cgroup } = this.#output;
    guarded(cgroup, () => native.resizeTerminal(descriptor, cols, rows));
  }

  /**
   * Reads the remaining output after the process has ended, even if the terminal is paused. It reads everything that
   * was written until then, and stops after 64 KiB or a little more, because others may go on writing. The kernel
   * flushes output of the slave before a non-blocking read of the master returns EAGAIN (n_tty_read).
   */
  drain(): void {
    for (let left = DRAIN_BYTES; left > 0; ) {
      this.#output.setPaused(false);
      const length = this.#output.read();
      if (length === 0) return;
      left -= length;
    }
  }

  /** Hangs up. The kernel sends SIGHUP to the terminal's session. */
  [Symbol.dispose](): void {
    if (this.#closed) return;
    this.#closed = true;
    this.input.destroy();
    this.#output.close();
    guarded(this.#output.cgroup, () => closeSync(this.slave));
  }
}

function openTerminal({ cols, rows }: TerminalSize, owner: Owner): TerminalEnds {
  let master = -1;
  try {
    const opened = native.openTerminal(cols, rows);
    master = opened.master;
    return { master, slave: openSlave(opened.slave, owner) };
  } catch (error) {
    if (master >= 0) closeSync(master);
    const text =
      'cannot open a terminal: no pseudoterminal (kernel.pty.max) or file descriptor is left, close some';
    throw new EnvdError('resource_exhausted', text, { cause: error });
  }
}

function openSlave(path: string, { uid, gid }: Owner): number {
  const slave = openSync(path, constants.O_RDWR | constants.O_NOCTTY);
  try {
    fchownSync(slave, uid, gid);
    fchmodSync(slave, TERMINAL_MODE);
    return slave;
  } catch (error) {
    closeSync(slave);
    throw error;
  }
}

function checkSize({ cols, rows }: TerminalSize): void {
  const fits = (cells: number) => cells >= 1 && cells <= 0xffff;
  if (fits(cols) && fits(rows)) return;
  throw new EnvdError(
    'invalid_argument',
    `terminal size must be 1 to 65535 cells each way, not ${cols}x${rows}`,
  );
}
