import { EnvdError } from '../../../base/errors.ts';
import { type PipePoller, type ReadEnd, WriteEnd } from '../../os/pipe-ends.ts';
import { Terminal, type TerminalSize } from '../../os/pty.ts';
import { type Launch, type Pipes, type Spawned, spawn, spawnWithPipes } from '../../os/spawn.ts';
import type { OutputStream } from './events.ts';
import type { InputChannel } from './input.ts';

export type OnOutput = (stream: OutputStream, bytes: Buffer) => void;

/** What connects the daemon with a process: three pipes or a terminal. */
export interface Channels {
  readonly kind: 'pipes' | 'terminal';
  /** The input, or null when there is none. */
  readonly input: InputChannel | null;
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
  poller: PipePoller,
  onOutput: OnOutput,
): Promise<{ process: Spawned; channels: Channels }> {
  const { process, pipes } = await spawnWithPipes(launch, withStdin);
  return { process, channels: new PipeChannels(pipes, poller, onOutput) };
}

/** Starts a process in a terminal of its own. */
export async function openTerminal(
  launch: Launch,
  size: TerminalSize,
  onOutput: OnOutput,
): Promise<{ process: Spawned; channels: Channels }> {
  const terminal = new Terminal(size, launch.user);
  try {
    const process = await spawn(launch, terminal.slave);
    return { process, channels: new TerminalChannels(terminal, onOutput) };
  } catch (error) {
    terminal[Symbol.dispose]();
    throw error;
  }
}

class PipeChannels implements Channels {
  readonly kind = 'pipes';
  readonly input: WriteEnd | null;
  readonly closed: Promise<void>;
  readonly #outputs: readonly PipeOutput[];

  constructor(pipes: Pipes, poller: PipePoller, onOutput: OnOutput) {
    this.input = pipes.stdin === null ? null : new WriteEnd(pipes.stdin);
    this.#outputs = [
      new PipeOutput(poller, pipes.stdout, (bytes) => onOutput('stdout', bytes)),
      new PipeOutput(poller, pipes.stderr, (bytes) => onOutput('stderr', bytes)),
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

/** What comes out of one pipe. */
class PipeOutput {
  readonly closed: Promise<void>;
  readonly #end: ReadEnd;
  /** Bytes that were in the pipe when the process ended and have not been told yet; null before. */
  #owed: number | null = null;
  readonly #settled = Promise.withResolvers<void>();
  #onBytes: ((bytes: Buffer) => void) | null;

  constructor(poller: PipePoller, descriptor: number, onBytes: (bytes: Buffer) => void) {
    this.#onBytes = onBytes;
    this.#end = poller.read(descriptor, (bytes) => this.#told(bytes));
    this.closed = this.#end.closed;
    void this.closed.then(this.#settled.resolve);
  }

  setPaused(paused: boolean): void {
    this.#end.setPaused(paused);
  }

  drained(): Promise<void> {
    this.#owed = this.#end.pending;
    this.#settle();
    return this.#settled.promise;
  }

  discard(): void {
    this.#onBytes = null;
    this.#end.setPaused(false);
    this.#end.unref();
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
  readonly input: InputChannel;
  readonly closed: Promise<void>;
  readonly #terminal: Terminal;
  readonly #onOutput: OnOutput;
  readonly #closed = Promise.withResolvers<void>();

  constructor(terminal: Terminal, onOutput: OnOutput) {
    this.#terminal = terminal;
    this.#onOutput = onOutput;
    // It stays open: closing it would hang up.
    this.input = { open: () => terminal.input, end: () => {} };
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
