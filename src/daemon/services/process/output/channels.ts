import { closeSync } from 'node:fs';
import { EnvdError } from '../../../../base/errors.ts';
import { InputQueue } from '../../../linux/processes/input-queue.ts';
import type { PipePoller, ReadEnd } from '../../../linux/processes/pipe-ends.ts';
import { Terminal, type TerminalSize } from '../../../linux/processes/pty.ts';
import { type Launch, type Spawned, spawn, spawnWithPipes } from '../../../linux/processes/spawn.ts';
import { SIGKILL, signalGroup } from '../../../linux/system/signals.ts';
import type { OutputStream } from './events.ts';
import type { Output } from './output.ts';
import { STREAMS } from './output-store.ts';

/** What connects the daemon with a process: three pipes or a terminal. Output goes to the `Output` of the process. */
export interface Channels {
  readonly kind: 'pipes' | 'terminal';
  /** The input, or null when there is none. */
  readonly input: InputQueue | null;
  /** Resolves when no process holds the output open. A terminal is hung up at the end of its process, whoever holds it. */
  readonly closed: Promise<void>;
  /** The descriptors that are open. */
  readonly ends: ChannelEnds;
  setPaused(paused: boolean): void;
  /**
   * To be called once, when the process has been reaped. Resolves when everything written until then has been read, with
   * whether a process holds the output open; a paused channel delays that. A boolean instead of a promise: that has
   * happened already.
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

/** The channels of a process that an earlier program has started; of a terminal that is closed, pipes that are closed. */
export function takeOverChannels(ends: ChannelEnds, poller: PipePoller, output: Output): Channels {
  const { master, slave } = ends;
  if (master === null || slave === null) return new PipeChannels(ends, poller, output, true);
  return new TerminalChannels(new Terminal(readStream('pty', master, poller, output, true), slave));
}

/** Starts a process on pipes; without `withStdin` its input is /dev/null. */
export async function openPipes(
  launch: Launch,
  withStdin: boolean,
  poller: PipePoller,
  output: Output,
): Promise<{ spawned: Spawned; channels: Channels }> {
  const { process: spawned, pipes } = await spawnWithPipes(launch, withStdin);
  try {
    const ends = { ...NO_ENDS, ...pipes };
    return { spawned, channels: new PipeChannels(ends, poller, output, !spawned.isOver) };
  } catch (error) {
    // Nobody would know about it.
    if (!spawned.isOver) signalGroup(spawned.pid, SIGKILL);
    const beingRead = poller.descriptors;
    for (const pipe of Object.values(pipes)) if (pipe !== null && !beingRead.includes(pipe)) closeSync(pipe);
    throw error;
  }
}

/** Starts a process in a new terminal. */
export async function openTerminal(
  launch: Launch,
  size: TerminalSize,
  poller: PipePoller,
  output: Output,
): Promise<{ spawned: Spawned; channels: Channels }> {
  const read = (master: number) => readStream('pty', master, poller, output, false);
  const terminal = Terminal.open(size, launch.user, read);
  try {
    // Nobody takes its output yet.
    terminal.setPaused(true);
    const spawned = await spawn(launch, terminal.slave);
    terminal.setPaused(false);
    return { spawned, channels: new TerminalChannels(terminal) };
  } catch (error) {
    terminal[Symbol.dispose]();
    throw error;
  }
}

/** Passes what is read from a descriptor on to `output`; with `isWatched` false only after `ReadEnd.read`. */
function readStream(
  stream: OutputStream,
  descriptor: number,
  poller: PipePoller,
  output: Output,
  isWatched: boolean,
): ReadEnd {
  const owner = { process: output.number, stream: STREAMS.indexOf(stream), offset: output.totals[stream] };
  return poller.read(descriptor, (bytes) => output.write(stream, bytes), owner, isWatched);
}

class PipeChannels implements Channels {
  readonly kind = 'pipes';
  readonly input: InputQueue | null;
  readonly #stdout: ReadEnd | null;
  readonly #stderr: ReadEnd | null;

  /** `isWatched` false: the process has ended, and `drained` is called next. */
  constructor(
    { stdin, stdout, stderr }: ChannelEnds,
    poller: PipePoller,
    output: Output,
    isWatched: boolean,
  ) {
    this.input = stdin === null ? null : new InputQueue(stdin, true);
    this.#stdout = stdout === null ? null : readStream('stdout', stdout, poller, output, isWatched);
    this.#stderr = stderr === null ? null : readStream('stderr', stderr, poller, output, isWatched);
  }

  get closed(): Promise<void> {
    return Promise.all([this.#stdout?.closed, this.#stderr?.closed]).then(() => {});
  }

  get ends(): ChannelEnds {
    const stdout = this.#stdout?.openDescriptor ?? null;
    const stderr = this.#stderr?.openDescriptor ?? null;
    return { ...NO_ENDS, stdin: this.input?.descriptor ?? null, stdout, stderr };
  }

  setPaused(paused: boolean): void {
    this.#stdout?.setPaused(paused);
    this.#stderr?.setPaused(paused);
  }

  drained(): boolean | Promise<boolean> {
    const waits = [this.#stdout?.drained() ?? null, this.#stderr?.drained() ?? null];
    if (waits.every((wait) => wait === null)) return this.#isHeld;
    return Promise.all(waits).then(() => this.#isHeld);
  }

  get #isHeld(): boolean {
    const { stdout, stderr } = this.ends;
    return stdout !== null || stderr !== null;
  }

  resize(): void {
    throw new EnvdError('failed_precondition', 'cannot resize: the process has no terminal');
  }

  discard(): void {
    this.input?.destroy();
    this.#stdout?.discard();
    this.#stderr?.discard();
  }
}

class TerminalChannels implements Channels {
  readonly kind = 'terminal';
  readonly input: InputQueue;
  readonly closed = Promise.resolve();
  readonly #terminal: Terminal;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    this.input = terminal.input;
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
    return false;
  }

  resize(size: TerminalSize): void {
    this.#terminal.resize(size);
  }

  discard(): void {
    this.#terminal[Symbol.dispose]();
  }
}
