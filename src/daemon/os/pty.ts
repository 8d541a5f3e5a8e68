import { closeSync, constants, fchmodSync, fchownSync, openSync, readSync } from 'node:fs';
import { ReadStream } from 'node:tty';
import * as nodePty from 'node-pty';
import { EnvdError } from '../../base/errors.ts';
import { DescriptorInput } from './descriptor-input.ts';
import { native } from './native.ts';

// node-pty exports its native functions, but its type definitions omit them.
interface PtyNative {
  open(cols: number, rows: number): { master: number; slave: number; pty: string };
  resize(fd: number, cols: number, rows: number): void;
}
const pty = (nodePty as unknown as { native: PtyNative }).native;

/** Size of a terminal in character cells. */
export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

/** Owner of a terminal. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** Descriptors of the two sides of a terminal. */
export interface TerminalEnds {
  readonly master: number;
  readonly slave: number;
}

/** More than the kernel holds of a terminal's output, some 20 KiB. Source: drivers/tty/pty.c and n_tty.c. */
const DRAIN_BYTES = 64 * 1024;
/** A read returns no more. Source: N_TTY_BUF_SIZE. */
const CHUNK_BYTES = 4096;
/** As login(1) sets it. */
const TERMINAL_MODE = 0o620;

/**
 * A pseudoterminal. node-pty allocates it and sets the window size; `spawn` starts the child on `slave`; a tty stream
 * of Node reads the master (docs/decisions/006-terminals.md).
 */
export class Terminal implements Disposable {
  /** The slave side, blocking; kept open so that the master does not hang up before it has been drained. */
  readonly slave: number;
  /** Its output. */
  readonly stream: ReadStream;
  readonly #master: number;
  #input: DescriptorInput | null = null;
  #closed = false;

  /**
   * The terminal is owned by `owner`, as after a login, so that programs can open it by name.
   * Throws `resource_exhausted` when the kernel has no more terminals, `invalid_argument` for a size of 0.
   */
  static open(size: TerminalSize, owner: Owner): Terminal {
    checkSize(size);
    return new Terminal(openTerminal(size, owner));
  }

  /** Owns both descriptors. */
  constructor({ master, slave }: TerminalEnds) {
    this.#master = master;
    this.slave = slave;
    this.stream = new ReadStream(master);
  }

  /** Its input, made when it is first asked for; never blocks the event loop, even if the program does not read. */
  get input(): DescriptorInput {
    this.#input ??= new DescriptorInput(this.#master, false);
    return this.#input;
  }

  /** Its descriptors; null when it is closed. */
  get ends(): TerminalEnds | null {
    return this.#closed ? null : { master: this.#master, slave: this.slave };
  }

  /** Takes what has been read and not yet passed on, and reads no more. */
  halt(): Buffer[] {
    this.stream.pause();
    const chunks: Buffer[] = [];
    for (let chunk = this.stream.read(); chunk !== null; chunk = this.stream.read()) chunks.push(chunk);
    return chunks;
  }

  /** Sets the window size; the kernel sends SIGWINCH to the foreground process group. */
  resize(size: TerminalSize): void {
    checkSize(size);
    pty.resize(this.#master, size.cols, size.rows);
  }

  /**
   * Reads the remaining output, after the process has ended: all that was written until then, and at most 64 KiB, since
   * others may go on writing. The kernel flushes output of the slave before a non-blocking read of the master returns
   * EAGAIN (n_tty_read).
   */
  drain(): Buffer[] {
    const chunks = this.halt();
    for (let left = DRAIN_BYTES; left > 0; ) {
      const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
      const length = this.#read(buffer);
      if (length === 0) break;
      chunks.push(buffer.subarray(0, length));
      left -= length;
    }
    return chunks;
  }

  #read(buffer: Buffer): number {
    try {
      return readSync(this.#master, buffer);
    } catch {
      return 0; // EAGAIN: no more data; EIO: hung up.
    }
  }

  /** Hangs up: the kernel sends SIGHUP to the terminal's session. */
  [Symbol.dispose](): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#input?.destroy();
    this.stream.destroy();
    closeSync(this.slave);
  }
}

function openTerminal(size: TerminalSize, owner: Owner): TerminalEnds {
  const { master: inherited, slave, pty: path } = openPair(size);
  // node-pty leaves its slave descriptor non-blocking, which a child would share: open another.
  closeSync(slave);
  const master = notInherited(inherited);
  try {
    return { master, slave: openSlave(path, owner) };
  } catch (error) {
    closeSync(master);
    throw error;
  }
}

function openPair({ cols, rows }: TerminalSize): { master: number; slave: number; pty: string } {
  try {
    return pty.open(cols, rows);
  } catch (error) {
    const text =
      'cannot open a terminal: no pseudoterminal (kernel.pty.max) or file descriptor is left, close some';
    throw new EnvdError('resource_exhausted', text, { cause: error });
  }
}

/** node-pty's descriptor would stay open in a program that replaces this one. */
function notInherited(descriptor: number): number {
  try {
    return native.duplicate(descriptor, false);
  } finally {
    closeSync(descriptor);
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
