import { closeSync } from 'node:fs';
import { EnvdError } from '../../../../base/errors.ts';
import { type ReadEnd, WriteEnd } from '../../../linux/processes/pipe-ends.ts';
import { Terminal, type TerminalSize } from '../../../linux/processes/pty.ts';
import { type Launch, type Spawned, spawn, spawnWithPipes } from '../../../linux/processes/spawn.ts';
import { SIGKILL, signalGroup } from '../../../linux/system/signals.ts';
import type { InputChannel } from './input.ts';
import { type OnOutput, type OutputSource, PipeOutput, readOutput } from './pipe-output.ts';

/** What connects the daemon with a process: three pipes or a terminal. */
export interface Channels {
  readonly kind: 'pipes' | 'terminal';
  /** The input, or null when there is none. */
  readonly input: InputChannel | null;
  /** Resolves when no process holds the output open. */
  readonly closed: Promise<void>;
  /** Resolves when the pipe of the input has been closed; null without one. */
  readonly inputClosed: Promise<void> | null;
  /** The descriptors that are open. */
  readonly ends: ChannelEnds;
  setPaused(paused: boolean): void;
  /**
   * To be called once, when the process has been reaped. Resolves when everything written until then has been passed
   * to `onOutput`, with whether a process holds the output open; a paused channel delays that. A boolean
   * instead of a promise: that has happened already.
   */
  drained(): boolean | Promise<boolean>;
  /** Throws `failed_precondition` where there is no terminal. */
  resize(size: TerminalSize): void;
  /** Reads and discards the output from now on, until the last holder closes it. */
  discard(): void;
}

/** The daemon's descriptors of the channels of a process; null: closed. */
export interface ChannelEnds {
  readonly stdin: number | null;
  readonly stdout: number | null;
  readonly stderr: number | null;
  /** The master is null without a terminal, and when it is closed. */
  readonly master: number | null;
  readonly slave: number | null;
}

export const NO_ENDS: ChannelEnds = { stdin: null, stdout: null, stderr: null, master: null, slave: null };

/** The channels of a process that an earlier program has started. */
export function takeOverChannels(
  kind: Channels['kind'],
  ends: ChannelEnds,
  source: OutputSource,
  onOutput: OnOutput,
): Channels {
  const { master, slave } = ends;
  if (kind === 'pipes') return new PipeChannels(ends, source, onOutput);
  if (master === null || slave === null) return CLOSED.terminal;
  return new TerminalChannels(new Terminal(readTerminal(master, source, onOutput, true), slave));
}

/** Starts a process on pipes; without `withStdin` its input is /dev/null. */
export async function openPipes(
  launch: Launch,
  withStdin: boolean,
  source: OutputSource,
  onOutput: OnOutput,
): Promise<{ process: Spawned; channels: Channels }> {
  const { process, pipes } = await spawnWithPipes(launch, withStdin);
  try {
    return { process, channels: new PipeChannels(pipes, source, onOutput, process.isOver) };
  } catch (error) {
    // Nobody would know about it.
    if (!process.isOver) signalGroup(process.pid, SIGKILL);
    const beingRead = source.poller.descriptors;
    for (const pipe of Object.values(pipes)) if (pipe !== null && !beingRead.includes(pipe)) closeSync(pipe);
    throw error;
  }
}

/** Starts a process in a new terminal. */
export async function openTerminal(
  launch: Launch,
  size: TerminalSize,
  source: OutputSource,
  onOutput: OnOutput,
): Promise<{ process: Spawned; channels: Channels }> {
  const read = (master: number) => readTerminal(master, source, onOutput, false);
  const terminal = Terminal.open(size, launch.user, read);
  try {
    // Nobody takes its output yet.
    terminal.setPaused(true);
    const process = await spawn(launch, terminal.slave);
    terminal.setPaused(false);
    return { process, channels: new TerminalChannels(terminal) };
  } catch (error) {
    terminal[Symbol.dispose]();
    throw error;
  }
}

function readTerminal(master: number, source: OutputSource, onOutput: OnOutput, isWatched: boolean): ReadEnd {
  return readOutput(source, 'pty', master, (bytes) => onOutput('pty', bytes), isWatched);
}

class PipeChannels implements Channels {
  readonly kind = 'pipes';
  readonly input: WriteEnd | null;
  readonly #outputs: readonly PipeOutput[];

  constructor(
    pipes: Pick<ChannelEnds, 'stdin' | 'stdout' | 'stderr'>,
    source: OutputSource,
    onOutput: OnOutput,
    isOver = false,
  ) {
    this.input = pipes.stdin === null ? null : new WriteEnd(pipes.stdin);
    this.#outputs = [
      new PipeOutput(source, 'stdout', pipes.stdout, onOutput, isOver),
      new PipeOutput(source, 'stderr', pipes.stderr, onOutput, isOver),
    ];
  }

  get closed(): Promise<void> {
    if (!this.#isHeld) return Promise.resolve();
    return Promise.all(this.#outputs.map(({ closed }) => closed)).then(() => {});
  }

  get inputClosed(): Promise<void> | null {
    return this.input?.closed ?? null;
  }

  get ends(): ChannelEnds {
    const [stdout = null, stderr = null] = this.#outputs.map(({ descriptor }) => descriptor);
    return { ...NO_ENDS, stdin: this.input?.descriptor ?? null, stdout, stderr };
  }

  setPaused(paused: boolean): void {
    for (const output of this.#outputs) output.setPaused(paused);
  }

  drained(): boolean | Promise<boolean> {
    const waits = this.#outputs.map((output) => output.drained());
    if (waits.every((wait) => wait === null)) return this.#isHeld;
    return Promise.all(waits).then(() => this.#isHeld);
  }

  get #isHeld(): boolean {
    return this.#outputs.some(({ descriptor }) => descriptor !== null);
  }

  resize(): void {
    throw new EnvdError('failed_precondition', 'cannot resize: the process has no terminal');
  }

  discard(): void {
    this.input?.destroy();
    for (const output of this.#outputs) output.discard();
  }
}

class TerminalChannels implements Channels {
  readonly kind = 'terminal';
  readonly input: InputChannel;
  readonly closed: Promise<void>;
  readonly inputClosed = null;
  readonly #terminal: Terminal;
  readonly #closed = Promise.withResolvers<void>();

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    // `end` does nothing: closing the terminal would hang it up.
    this.input = { open: () => terminal.input, end: () => {} };
    this.closed = this.#closed.promise;
  }

  get ends(): ChannelEnds {
    return { ...NO_ENDS, ...this.#terminal.ends };
  }

  setPaused(paused: boolean): void {
    this.#terminal.setPaused(paused);
  }

  // At once: it is less than the window of a reader.
  drained(): boolean {
    this.#terminal.drain();
    this.#closed.resolve();
    return false;
  }

  resize(size: TerminalSize): void {
    this.#terminal.resize(size);
  }

  discard(): void {
    this.#terminal[Symbol.dispose]();
  }
}

class ClosedChannels implements Channels {
  readonly kind: Channels['kind'];
  readonly input = null;
  readonly closed = Promise.resolve();
  readonly inputClosed = null;
  readonly ends = NO_ENDS;

  constructor(kind: Channels['kind']) {
    this.kind = kind;
  }

  setPaused(): void {}

  drained(): boolean {
    return false;
  }

  resize(): void {
    throw new EnvdError('failed_precondition', 'cannot resize: the process has ended');
  }

  discard(): void {}
}

/** In place of the channels of a process that has ended and whose output nobody holds open. */
export const CLOSED: Readonly<Record<Channels['kind'], Channels>> = {
  pipes: new ClosedChannels('pipes'),
  terminal: new ClosedChannels('terminal'),
};
