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

/** Connects the daemon with a process, by three pipes or a terminal. Output goes to the `Output` of the process. */
export interface Channels {
  readonly kind: 'pipes' | 'terminal';
  readonly input: InputQueue | null;
  /** Resolves when no process holds the output open. A terminal is hung up when its process ends, whoever holds it. */
  readonly closed: Promise<void>;
  readonly ends: ChannelEnds;
  /** Null for pipes. */
  readonly terminal: Terminal | null;
  setPaused(paused: boolean): void;
  /**
   * Reads everything that was written until now, and tells whether a process still holds the output open. Call it once,
   * when the process has been reaped. The result is a promise if that takes time, for instance while the channel is
   * paused.
   */
  drained(): boolean | Promise<boolean>;
  /** Throws `failed_precondition` where there is no terminal. */
  resize(size: TerminalSize): void;
  /** Reads and discards the output from now on, until the last holder closes it. */
  discard(): void;
}

/** The daemon's descriptors of the channels of a process. A descriptor is null when it is closed. */
export interface ChannelEnds {
  readonly stdin: number | null;
  readonly stdout: number | null;
  readonly stderr: number | null;
  /** The master is null without a terminal, and when it is closed. */
  readonly master: number | null;
  readonly slave: number | null;
}

export const NO_ENDS: ChannelEnds = { stdin: null, stdout: null, stderr: null, master: null, slave: null };

/** Says where the output of a process goes. */
export interface Receiver {
  readonly poller: PipePoller;
  readonly output: Output;
  /** The path of the cgroup of the process, or null if it has none. */
  readonly cgroup: string | null;
}

/**
 * Returns the channels of a process that an earlier program has started. A closed terminal becomes closed pipes. A terminal gets
 * its `size` again, because the earlier program may have ended during a redraw. `size` is null if it is not known.
 */
export function takeOverChannels(ends: ChannelEnds, receiver: Receiver, size: TerminalSize | null): Channels {
  const { master, slave } = ends;
  if (master === null || slave === null) return new PipeChannels(ends, receiver, true);
  const terminal = new Terminal(readStream('pty', master, receiver, true), slave, size);
  if (size !== null) terminal.resize(size);
  return new TerminalChannels(terminal);
}

/** Starts a process on pipes, or in a new terminal. Without `stdin` the input is /dev/null, unless it is a terminal. */
export async function openChannels(
  launch: Launch,
  { terminal, stdin }: { readonly terminal: TerminalSize | null; readonly stdin: boolean },
  poller: PipePoller,
  output: Output,
): Promise<{ spawned: Spawned; channels: Channels }> {
  const receiver = { poller, output, cgroup: launch.cgroup };
  if (terminal) return openTerminal(launch, terminal, receiver);
  const { process: spawned, pipes } = await spawnWithPipes(launch, stdin);
  try {
    const ends = { ...NO_ENDS, ...pipes };
    return { spawned, channels: new PipeChannels(ends, receiver, !spawned.isOver) };
  } catch (error) {
    // Nobody would know about the process.
    if (!spawned.isOver) signalGroup(spawned.pid, SIGKILL);
    const beingRead = poller.descriptors;
    for (const pipe of Object.values(pipes)) if (pipe !== null && !beingRead.includes(pipe)) closeSync(pipe);
    throw error;
  }
}

async function openTerminal(
  launch: Launch,
  size: TerminalSize,
  receiver: Receiver,
): Promise<{ spawned: Spawned; channels: Channels }> {
  const read = (master: number) => readStream('pty', master, receiver, false);
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

/** Passes what is read on to `output`. If `isWatched` is false, it reads only when `ReadEnd.read` is called. */
function readStream(
  stream: OutputStream,
  descriptor: number,
  { poller, output, cgroup }: Receiver,
  isWatched: boolean,
): ReadEnd {
  const offset = output.totals[stream];
  const owner = { process: output.number, stream: STREAMS.indexOf(stream), offset, cgroup };
  return poller.read(descriptor, (bytes) => output.write(stream, bytes), owner, isWatched);
}

class PipeChannels implements Channels {
  readonly kind = 'pipes';
  readonly terminal = null;
  readonly input: InputQueue | null;
  readonly #stdout: ReadEnd | null;
  readonly #stderr: ReadEnd | null;

  /** `isWatched` is false if the process has ended and `drained` is called next. */
  constructor({ stdin, stdout, stderr }: ChannelEnds, receiver: Receiver, isWatched: boolean) {
    this.input = stdin === null ? null : new InputQueue(stdin, true, receiver.cgroup);
    this.#stdout = stdout === null ? null : readStream('stdout', stdout, receiver, isWatched);
    this.#stderr = stderr === null ? null : readStream('stderr', stderr, receiver, isWatched);
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
  readonly terminal: Terminal;

  constructor(terminal: Terminal) {
    this.terminal = terminal;
    this.input = terminal.input;
  }

  get ends(): ChannelEnds {
    return { ...NO_ENDS, ...this.terminal.ends };
  }

  setPaused(paused: boolean): void {
    this.terminal.setPaused(paused);
  }

  // A terminal is drained at once, because it holds less than the window of a reader.
  drained(): boolean {
    this.terminal.drain();
    return false;
  }

  resize(size: TerminalSize): void {
    this.terminal.resize(size);
  }

  discard(): void {
    this.terminal[Symbol.dispose]();
  }
}
