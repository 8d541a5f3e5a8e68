import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { EnvdError } from '../../base/errors.ts';
import { pendingBytes } from '../../os/pipes.ts';
import { Terminal, type TerminalSize } from '../../os/pty.ts';
import {
  type Launch,
  type Pipes,
  type ReadEnd,
  type Spawned,
  spawn,
  spawnWithPipes,
} from '../../os/spawn.ts';
import type { OutputStream } from './events.ts';

export type OnOutput = (stream: OutputStream, bytes: Buffer) => void;

/** What connects the daemon with a process: three pipes or a terminal. */
export interface Channels {
  readonly kind: 'pipes' | 'terminal';
  /** The writable side of the input, or null when there is none. */
  readonly input: Writable | null;
  /** Settles when no process holds the output open any more. */
  readonly closed: Promise<void>;
  setPaused(paused: boolean): void;
  /**
   * To be called once, when the process has been reaped: settles when all that had been written by then has been
   * told. Pauses are still honoured, so this takes as long as the slowest reader.
   */
  drained(): Promise<void>;
  /** Throws `failed_precondition` where there is no terminal. */
  resize(size: TerminalSize): void;
  /** From now on output is read and thrown away, until the last holder closes it. */
  discard(): void;
}

/** Starts a process on pipes; without `withStdin` its input is /dev/null. */
export async function openPipes(
  launch: Launch,
  withStdin: boolean,
  onOutput: OnOutput,
): Promise<{ process: Spawned; channels: Channels }> {
  const { process, pipes } = await spawnWithPipes(launch, withStdin);
  return { process, channels: new PipeChannels(pipes, onOutput) };
}

/** Starts a process in a terminal of its own. */
export async function openTerminal(
  launch: Launch,
  size: TerminalSize,
  onOutput: OnOutput,
): Promise<{ process: Spawned; channels: Channels }> {
  const terminal = new Terminal(size, launch.user);
  try {
    const process = await spawn(launch, [terminal.slave, terminal.slave, terminal.slave], true);
    return { process, channels: new TerminalChannels(terminal, onOutput) };
  } catch (error) {
    terminal[Symbol.dispose]();
    throw error;
  }
}

class PipeChannels implements Channels {
  readonly kind = 'pipes';
  readonly input: Socket | null;
  readonly closed: Promise<void>;
  readonly #outputs: readonly PipeOutput[];

  constructor(pipes: Pipes, onOutput: OnOutput) {
    this.input = pipes.stdin;
    this.#outputs = [
      new PipeOutput(pipes.stdout, (bytes) => onOutput('stdout', bytes)),
      new PipeOutput(pipes.stderr, (bytes) => onOutput('stderr', bytes)),
    ];
    this.closed = Promise.all(this.#outputs.map((output) => output.closed)).then(() => {});
  }

  setPaused(paused: boolean): void {
    for (const output of this.#outputs) output.setPaused(paused);
  }

  async drained(): Promise<void> {
    await Promise.all(this.#outputs.map((output) => output.drained()));
  }

  resize(): void {
    throw new EnvdError('failed_precondition', 'process has no terminal to resize');
  }

  discard(): void {
    this.input?.destroy();
    for (const output of this.#outputs) output.discard();
  }
}

/** The reading end of one pipe. */
class PipeOutput {
  readonly closed: Promise<void>;
  readonly #pipe: ReadEnd;
  /** Bytes that were in the pipe when the process ended and have not been told yet; null before. */
  #owed: number | null = null;
  readonly #settled = Promise.withResolvers<void>();
  #onBytes: ((bytes: Buffer) => void) | null;

  constructor(pipe: ReadEnd, onBytes: (bytes: Buffer) => void) {
    this.#pipe = pipe;
    this.#onBytes = onBytes;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    pipe.socket.on('data', (bytes: Buffer) => this.#told(bytes));
    pipe.socket.on('error', () => {}); // 'close' follows.
    pipe.socket.on('close', () => {
      resolve();
      this.#settled.resolve();
    });
  }

  setPaused(paused: boolean): void {
    if (paused) this.#pipe.socket.pause();
    else this.#pipe.socket.resume();
  }

  drained(): Promise<void> {
    const { socket, fd } = this.#pipe;
    if (!socket.destroyed) {
      this.#owed = socket.readableLength + (socket.readableEnded ? 0 : pendingBytes(fd));
      this.#settle();
    }
    return this.#settled.promise;
  }

  discard(): void {
    this.#onBytes = null;
    this.#pipe.socket.resume();
    this.#pipe.socket.unref();
  }

  #told(bytes: Buffer): void {
    this.#onBytes?.(bytes);
    if (this.#owed === null) return;
    this.#owed -= bytes.length;
    this.#settle();
  }

  #settle(): void {
    if (this.#owed !== null && this.#owed <= 0) this.#settled.resolve();
  }
}

class TerminalChannels implements Channels {
  readonly kind = 'terminal';
  readonly input: Writable;
  readonly closed: Promise<void>;
  readonly #terminal: Terminal;
  readonly #onOutput: OnOutput;
  readonly #closed = Promise.withResolvers<void>();

  constructor(terminal: Terminal, onOutput: OnOutput) {
    this.#terminal = terminal;
    this.#onOutput = onOutput;
    this.input = terminal.input;
    this.closed = this.#closed.promise;
    terminal.stream.on('data', (bytes: Buffer) => onOutput('pty', bytes));
    terminal.stream.on('error', () => {}); // EIO: everybody has hung up.
  }

  setPaused(paused: boolean): void {
    if (paused) this.#terminal.stream.pause();
    else this.#terminal.stream.resume();
  }

  // At once: the kernel holds no more than a few pages, less than the window of any reader.
  drained(): Promise<void> {
    for (const bytes of this.#terminal.drain()) this.#onOutput('pty', bytes);
    this.#closed.resolve();
    return Promise.resolve();
  }

  resize(size: TerminalSize): void {
    this.#terminal.resize(size);
  }

  discard(): void {
    this.#terminal[Symbol.dispose]();
  }
}
