import { within } from '../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { TerminalSize } from '../../os/pty.ts';
import { SIGKILL, signalGroup } from '../../os/signals.ts';
import type { ProcessExit, Spawned } from '../../os/spawn.ts';
import type { Channels } from './channels.ts';
import { type EndEvent, endEvent, type Offsets } from './events.ts';
import { Input } from './input.ts';
import type { Leaf } from './leaf.ts';
import type { Output } from './output.ts';
import type { Reader } from './reader.ts';

/**
 * How long after the exit the end waits for background children that hold the pipes, in milliseconds. What the
 * process itself wrote is waited for however long its readers take; a killed process is not held.
 */
const PIPE_HOLD_MS = 2000;

/** How long who has asked for a kill waits for the end of the process, in milliseconds: one in state D takes its time. */
const KILL_WAIT_MS = 250;

/** What a client asked to run, as List shows it. */
export interface ProcessConfig {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string | null;
}

/**
 * A process from its start to its end. Running: it takes input and signals. Then it has been reaped and what it
 * wrote is still on its way to the readers. Ended: the end event is out, and nothing follows.
 */
export class ManagedProcess {
  readonly pid: number;
  readonly config: ProcessConfig;
  readonly tag: string | null;
  /** Settles with the end event, once it is the last one in the output. */
  readonly ended: Promise<EndEvent>;

  #state: 'running' | 'reaped' | 'ended' = 'running';
  #killed = false;
  #expired = false;
  readonly #channels: Channels;
  readonly #input: Input | null;
  readonly #output: Output;
  readonly #leaf: Leaf | null;

  /** What it writes goes to `output` through `channels` already; it runs in `leaf`, if there are cgroups. */
  constructor(parts: {
    readonly config: ProcessConfig;
    readonly tag: string | null;
    readonly spawned: Spawned;
    readonly channels: Channels;
    readonly output: Output;
    readonly leaf: Leaf | null;
  }) {
    this.pid = parts.spawned.pid;
    this.config = parts.config;
    this.tag = parts.tag;
    this.#channels = parts.channels;
    this.#output = parts.output;
    this.#leaf = parts.leaf;
    const { input } = parts.channels;
    this.#input = input && new Input(input, this.#inputName());
    this.ended = parts.spawned.exit.then((exit) => this.#finish(exit));
  }

  get hasCgroup(): boolean {
    return this.#leaf !== null;
  }

  get isTerminal(): boolean {
    return this.#channels.kind === 'terminal';
  }

  /**
   * A reader of the start event and of everything from now on; with `from`, first of what is kept from these offsets
   * on. Throws `invalid_argument` for an offset that has not been reached.
   */
  read(from: Offsets | null): Reader {
    return this.#output.read(this.pid, from);
  }

  /** Throws `failed_precondition` when the process takes no such input, or no more. */
  write(kind: 'stdin' | 'pty', bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.isTerminal !== (kind === 'pty')) {
      const wanted = this.isTerminal ? 'has a terminal: send pty input' : 'has no terminal: send stdin input';
      throw new EnvdError('failed_precondition', `process ${this.pid} ${wanted}`);
    }
    return this.#openedInput().write(bytes, signal);
  }

  /** Throws `failed_precondition` for a terminal, whose input ends with the byte 0x04 instead. */
  closeStdin(): void {
    if (this.isTerminal) {
      throw new EnvdError(
        'failed_precondition',
        `stdin of process ${this.pid} is a terminal and cannot be closed: send the byte 0x04 (end of transmission)`,
      );
    }
    this.#input?.close();
  }

  /** Throws `failed_precondition` without a terminal and `invalid_argument` for an impossible size. */
  resize(size: TerminalSize): void {
    this.#channels.resize(size);
  }

  /** `kill` because its time is up; the reader that asked for this is told. */
  expire(): boolean {
    this.#expired = true;
    return this.kill();
  }

  /**
   * Kills the process and all below it; without cgroups, its group. False when no more than the group could be
   * reached: its tree takes a descriptor, and there may be none left.
   */
  kill(): boolean {
    try {
      if (this.#leaf) this.signalTree(SIGKILL);
      else this.signal(SIGKILL);
      return true;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      if (this.#state === 'running') signalGroup(this.pid, SIGKILL);
      return false;
    }
  }

  /** Gives up the output that is kept for clients that come back. */
  forgetOutput(): void {
    this.#output.forget();
  }

  /** Whether the deadline ended the process. */
  get expired(): boolean {
    return this.#expired;
  }

  /** Signals the whole process group; a process that has just ended is no error. */
  signal(signal: number): void {
    if (signal === SIGKILL) this.#killed = true;
    // Once the process is reaped, the number of a group that has gone may be somebody else's.
    if (this.#state !== 'running' && this.#leaf?.holdsGroup(this.pid) === false) return;
    signalGroup(this.pid, signal);
  }

  /** Settles when it has ended after a kill, or when that takes too long. */
  async endedAfterKill(): Promise<void> {
    await within(KILL_WAIT_MS, this.ended, () => null);
  }

  /** Signals everything below the process too, in whatever session. Throws `failed_precondition` without cgroups. */
  signalTree(signal: number): void {
    if (!this.#leaf) {
      const text = `process ${this.pid} has no cgroup of its own: its tree cannot be signalled`;
      throw new EnvdError('failed_precondition', text);
    }
    if (signal === SIGKILL) this.#killed = true;
    this.#leaf.signal(signal);
  }

  #inputName(): string {
    return `${this.isTerminal ? 'terminal input' : 'stdin'} of process ${this.pid}`;
  }

  #openedInput(): Input {
    if (this.#input && this.#state === 'running') return this.#input;
    throw new EnvdError('failed_precondition', `${this.#inputName()} is closed`);
  }

  async #finish(exit: ProcessExit): Promise<EndEvent> {
    this.#state = 'reaped';
    const closed = within(PIPE_HOLD_MS, this.#channels.closed, () => {});
    await this.#channels.drained();
    if (!this.#killed) await closed;
    this.#state = 'ended';
    const event = endEvent(exit, this.#expired, this.#leaf?.usage() ?? null);
    this.#output.end(event);
    this.#input?.close();
    this.#channels.discard();
    this.#leaf?.release();
    return event;
  }
}
