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
  /** Resolves when no process holds the output open. */
  readonly closed: Promise<void>;
  setPaused(paused: boolean): void;
  /**
   * To be called once, when the process has been reaped. Resolves when everything written until then has been passed
   * to `onOutput`; a paused channel delays that.
   */
  drained(): Promise<void>;
  /** Throws `failed_precondition` where there is no terminal. */
  resize(size: TerminalSize): void;
  /** Reads and discards the output from now on, until the last holder closes it. */
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

/** Starts a process in a new terminal. */
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
    throw new EnvdError('failed_precondition', 'cannot resize: the process has no terminal');
  }

  discard(): void {
    this.input?.destroy();
    for (const output of this.#outputs) output.discard();
  }
}

/** The read end of stdout or stderr. */
class PipeOutput {
  readonly closed: Promise<void>;
  readonly #end: ReadEnd;
  /** Bytes that were in the pipe when the process was reaped and are still unread; null before. */
  #unread: number | null = null;
  readonly #settled = Promise.withResolvers<void>();
  #onBytes: ((bytes: Buffer) => void) | null;

  constructor(poller: PipePoller, descriptor: number, onBytes: (bytes: Buffer) => void) {
    this.#onBytes = onBytes;
    this.#end = poller.read(descriptor, (bytes) => this.#received(bytes));
    this.closed = this.#end.closed;
    void this.closed.then(this.#settled.resolve);
  }

  setPaused(paused: boolean): void {
    this.#end.setPaused(paused);
  }

  drained(): Promise<void> {
    this.#unread = this.#end.pending;
    this.#settle();
    return this.#settled.promise;
  }

  discard(): void {
    this.#onBytes = null;
    this.#end.setPaused(false);
    this.#end.unref();
  }

  #received(bytes: Buffer): void {
    this.#onBytes?.(bytes);
    if (this.#unread === null) return;
    this.#unread -= bytes.length;
    this.#settle();
  }

  #settle(): void {
    if (this.#unread !== null && this.#unread <= 0) this.#settled.resolve();
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
    // `end` does nothing: closing the terminal would hang it up.
    this.input = { open: () => terminal.input, end: () => {} };
    this.closed = this.#closed.promise;
    terminal.stream.on('data', (bytes: Buffer) => onOutput('pty', bytes));
    terminal.stream.on('error', () => {}); // EIO: the last process has closed the terminal.
  }

  setPaused(paused: boolean): void {
    if (paused) this.#terminal.stream.pause();
    else this.#terminal.stream.resume();
  }

  // At once: it is less than the window of a reader.
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
