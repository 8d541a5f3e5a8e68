import { closeSync, constants, fchmodSync, fchownSync, openSync, readSync, writeSync } from 'node:fs';
import { Writable } from 'node:stream';
import { ReadStream } from 'node:tty';
import * as nodePty from 'node-pty';
import { EnvdError, isSystemError } from '../../base/errors.ts';
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

/** Interval of attempts to write to a full terminal when no descriptor is left to wait for it, in milliseconds. */
const RETRY_MS = 50;
/** More than the kernel holds of a terminal's output, some 20 KiB. Source: drivers/tty/pty.c and n_tty.c. */
const DRAIN_BYTES = 64 * 1024;
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
  /** Its input; never blocks the event loop, even if the program does not read. */
  readonly input: Writable;
  readonly #master: number;
  #closed = false;

  /**
   * The terminal is owned by `owner`, as after a login, so that programs can open it by name.
   * Throws `resource_exhausted` when the kernel has no more terminals, `invalid_argument` for a size of 0.
   */
  constructor(size: TerminalSize, owner: Owner) {
    checkSize(size);
    const { master, slave } = openTerminal(size, owner);
    this.#master = master;
    this.slave = slave;
    this.stream = new ReadStream(master);
    this.input = new TerminalInput(master);
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
    this.stream.pause();
    const chunks: Buffer[] = [];
    for (let chunk = this.stream.read(); chunk !== null; chunk = this.stream.read()) chunks.push(chunk);
    const buffer = Buffer.allocUnsafe(DRAIN_BYTES);
    let end = 0;
    for (let length = -1; length !== 0; end += length) length = this.#read(buffer.subarray(end));
    return end === 0 ? chunks : [...chunks, Buffer.from(buffer.subarray(0, end))];
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
    this.input.destroy();
    this.stream.destroy();
    closeSync(this.slave);
  }
}

/**
 * The writing side of the master. Not a tty stream of Node: libuv writes to a terminal that it cannot reopen in a busy
 * loop until everything is written, so a program that does not read would block the event loop.
 */
class TerminalInput extends Writable {
  readonly #master: number;
  #cancel: () => void = () => {};

  constructor(master: number) {
    super();
    this.#master = master;
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, done: (error?: Error) => void): void {
    let written = 0;
    try {
      while (written < chunk.length) written += writeSync(this.#master, chunk, written);
      done();
    } catch (error) {
      const rest = chunk.subarray(written);
      const retry = () => this._write(rest, encoding, done);
      if (isSystemError(error, 'EAGAIN')) this.#cancel = this.#whenWritable(retry);
      else done(error as Error);
    }
  }

  /** Waiting needs a descriptor; if none is available, `retry` is called after a delay. */
  #whenWritable(retry: () => void): () => void {
    try {
      return native.awaitWritable(this.#master, retry);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      const timer = setTimeout(retry, RETRY_MS).unref();
      return () => clearTimeout(timer);
    }
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#cancel();
    done(error);
  }
}

function openTerminal(size: TerminalSize, owner: Owner): { master: number; slave: number } {
  const { master, slave, pty: path } = openPair(size);
  // node-pty leaves its slave descriptor non-blocking, which a child would share: open another.
  closeSync(slave);
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
