import { within } from '../../../../base/abort.ts';
import { EnvdError, isSystemError, messageOf } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import { debug } from '../../../../base/program/debug.ts';
import type { TerminalSize } from '../../../linux/processes/pty.ts';
import type { ProcessExit, Spawned } from '../../../linux/processes/spawn.ts';
import { isHeld, SIGKILL, signalGroup, signalProcess } from '../../../linux/system/signals.ts';
import type { Leaf } from '../cgroups/leaf.ts';
import type { Channels } from '../output/channels.ts';
import { endEvent, type Offsets } from '../output/events.ts';
import type { Output } from '../output/output.ts';
import type { Reader } from '../output/reader.ts';
import { redraw } from '../output/redraw.ts';
import { EndedProcess, noTerminal } from './ended.ts';
import type { KeptConfig } from './process-config.ts';
import type { ProcessState, RecordedState } from './process-state.ts';
import type { ProcessRecord } from './records.ts';

/** The end event waits this long, in milliseconds, for children that hold the pipes open, except after a kill. */
const PIPE_HOLD_MS = 2000;
/** At a deadline, attempts to kill the whole tree are this far apart, in milliseconds. */
const RETRY_MS = 100;

/**
 * In `running` it takes input and signals. In `exiting` it had exited when its start was reported, and its exit is
 * reported in the same turn of the event loop. In `reaped` its output is being delivered. In `ended` an `EndedProcess`
 * replaces it.
 */
type Phase = 'running' | 'exiting' | 'reaped' | 'ended';

/** A process is made of these parts. `channels` already feeds `output`. */
interface ProcessParts extends Pick<ManagedProcess, 'config' | 'tag' | 'startId' | 'output'> {
  /** The deadline kills it at this time, by `monotonicMs`. Null means never. */
  readonly deadlineAt: number | null;
  readonly spawned: Spawned;
  readonly channels: Channels;
  /** The leaf is null without cgroups. */
  readonly leaf: Leaf | null;
  /** A program that comes after a crash finds the process by this record. */
  readonly record: ProcessRecord;
  /** What an earlier program knew of it; null if this program has started it. */
  readonly past: Pick<ProcessState, 'unwritten' | 'isInputClosed' | 'isKilled' | 'isExpired' | 'exit'> | null;
}

/** Manages a process from its start to its end. */
export class ManagedProcess {
  readonly pid: number;
  /** What was asked for, as far as it is kept. */
  readonly config: KeptConfig;
  readonly tag: string | null;
  readonly startId: string | null;
  readonly output: Output;
  /** Resolves once the end event has been appended to the output. */
  readonly ended: Promise<EndedProcess>;
  #phase: Phase;
  #exit: ProcessExit | null;
  #isKilled: boolean;
  #isExpired: boolean;
  readonly #channels: Channels;
  readonly #leaf: Leaf | null;
  readonly #record: ProcessRecord;
  readonly #isChild: boolean;
  #pidfd: number | null;
  readonly #deadlineAt: number | null;
  #deadline: NodeJS.Timeout | null = null;

  constructor(parts: ProcessParts) {
    const { spawned, channels, output, past } = parts;
    ({ pid: this.pid, isChild: this.#isChild, pidfd: this.#pidfd } = spawned);
    ({ config: this.config, tag: this.tag, startId: this.startId } = parts);
    ({ leaf: this.#leaf, record: this.#record, deadlineAt: this.#deadlineAt } = parts);
    this.#phase = spawned.isOver ? 'exiting' : 'running';
    this.#exit = past?.exit ?? null;
    this.#isKilled = past?.isKilled ?? false;
    this.#isExpired = past?.isExpired ?? false;
    this.#channels = channels;
    this.output = output;
    output.attach(channels);
    const { input } = channels;
    if (past?.unwritten) input?.accept(past.unwritten);
    if (past?.isInputClosed) input?.end();
    void input?.closed.then(() => this.#keep());
    this.ended = spawned.exit.then((exit) => this.#finish(exit));
    if (this.#deadlineAt !== null) this.#expireAfter(Math.max(0, this.#deadlineAt - monotonicMs()));
    // A process that has ended is recorded only at its end, before its client is told anything.
    if (!spawned.isOver) this.#keep();
  }

  get hasCgroup(): boolean {
    return this.#leaf !== null;
  }
  get isTerminal(): boolean {
    return this.#channels.kind === 'terminal';
  }
  /** Tells whether its end follows in this turn of the event loop, unless others hold its output open. */
  get isExiting(): boolean {
    return this.#phase !== 'running';
  }

  /**
   * Resolves when the input has been accepted. Throws `failed_precondition` when the process has no such input or it is
   * closed, and the reason when `signal` aborts.
   */
  async write(kind: 'stdin' | 'pty', bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.isTerminal !== (kind === 'pty')) {
      const wanted = this.isTerminal ? 'has a terminal: send pty input' : 'has no terminal: send stdin input';
      throw new EnvdError('failed_precondition', `process ${this.pid} ${wanted}`);
    }
    const input = this.#phase === 'running' ? this.#channels.input : null;
    if (await input?.write(bytes, signal)) return;
    const name = this.isTerminal ? 'terminal input' : 'stdin';
    throw new EnvdError('failed_precondition', `${name} of process ${this.pid} is closed`);
  }

  /** Closes stdin. Throws `failed_precondition` for a terminal, whose input ends with the byte 0x04 instead. */
  closeStdin(): void {
    if (this.isTerminal) {
      const text = 'is a terminal and cannot be closed: send the byte 0x04 (end of transmission)';
      throw new EnvdError('failed_precondition', `stdin of process ${this.pid} ${text}`);
    }
    this.#channels.input?.end();
    this.#keep();
  }

  /** Throws `failed_precondition` without a terminal and `invalid_argument` for an impossible size. */
  resize(size: TerminalSize): void {
    this.#channels.resize(size);
    this.#keep();
  }

  /**
   * Returns a reader that shows the terminal, and asks the program to draw itself again for it. See `Output.join`. Throws
   * `failed_precondition` without a terminal.
   */
  join(from: Offsets | null): Reader {
    const { terminal } = this.#channels;
    if (!terminal) throw noTerminal(this.pid);
    const reader = this.output.join(this.pid, from, terminal.size);
    redraw(this.pid, terminal, this.output).catch((error: unknown) =>
      debug('process', 'terminal not redrawn', () => ({ pid: this.pid, error: messageOf(error) })),
    );
    return reader;
  }

  /**
   * Kills the process and all its descendants or, without cgroups, its process group. Returns false when it could
   * signal only the process group, because no descriptor was free to read the cgroup.
   */
  kill(): boolean {
    try {
      if (this.#leaf) this.signalTree(SIGKILL);
      else this.signalGroup(SIGKILL);
      return true;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      if (this.#phase === 'running') signalGroup(this.pid, SIGKILL);
      return false;
    }
  }

  /** Reads no more output, and records the whole state for a program that comes after this one. */
  handOver(): void {
    this.output.hold();
    this.#record.keep({ state: this.stateWithRecord });
  }

  /** Returns the whole state with the key of its record, for a later program of this process. */
  get stateWithRecord(): RecordedState {
    return { ...this.state, unwritten: this.#channels.input?.unwritten ?? null, record: this.#record.key };
  }

  /** Returns the state for a program that comes after a crash, without unwritten input, which changes too often. */
  get state(): ProcessState {
    const { pid, config, tag, startId } = this;
    const { kind, ends, input } = this.#channels;
    return {
      ...{ pid, config, tag, startId, kind, ends },
      deadlineAt: this.#deadlineAt,
      pidfd: this.#pidfd,
      isChild: this.#isChild,
      leaf: this.#leaf?.path ?? null,
      totals: this.output.totals,
      number: this.output.number,
      unwritten: null,
      isInputClosed: !input?.isOpen,
      isKilled: this.#isKilled,
      isExpired: this.#isExpired,
      exit: this.#exit,
      end: null,
      endedAt: 0,
      size: this.#channels.terminal?.size ?? null,
      modes: this.output.modes,
    };
  }

  /** Signals the process group, and succeeds also when that has just ended. */
  signal(signal: number): void {
    // The kernel may give the id of a reaped process to another group.
    if (this.#leaf && !this.#hasPid()) this.#leaf.signalGroup(this.pid, signal);
    else this.signalGroup(signal);
  }

  /** Signals the process group by its id, without a check of whose it is. */
  signalGroup(signal: number): void {
    if (this.#phase === 'ended') return;
    if (signal === SIGKILL) this.#isKilled = true;
    signalGroup(this.pid, signal);
  }

  /** Signals the process and all its descendants, in whatever session. Throws `failed_precondition` without cgroups. */
  signalTree(signal: number): void {
    if (!this.#leaf) {
      const text = `process ${this.pid} has no cgroup of its own: its tree cannot be signaled`;
      throw new EnvdError('failed_precondition', text);
    }
    if (signal === SIGKILL) this.#isKilled = true;
    this.#leaf.signal(signal);
    // Root can move a process to another cgroup.
    const isReached = signal !== SIGKILL && this.#leaf.has(this.pid);
    if (!isReached && this.#hasPid()) signalProcess(this.pid, signal);
  }

  /** Tells whether its pid cannot be that of another process. One that is not our child may have been reaped. */
  #hasPid(): boolean {
    if (this.#phase !== 'running') return false;
    return this.#isChild || (this.#pidfd !== null && isHeld(this.#pidfd));
  }

  /** Records the state, which has changed. */
  #keep(): void {
    if (this.#phase !== 'ended') this.#record.keep(this);
  }

  /** Kills the process at its deadline, even if the client that set it has disconnected. */
  #expireAfter(milliseconds: number): void {
    this.#deadline = setTimeout(() => {
      this.#isExpired = true;
      this.#keep();
      if (!this.kill()) this.#expireAfter(RETRY_MS);
    }, milliseconds).unref();
  }

  async #finish(exit: ProcessExit): Promise<EndedProcess> {
    this.#phase = 'reaped';
    this.#exit = exit;
    this.#pidfd = null;
    const turn = setImmediate(() => this.#keep());
    const isHeld = await this.#channels.drained();
    // Most processes end at once, and need no record of this state.
    if (!isHeld) clearImmediate(turn);
    else if (!this.#isKilled) await within(PIPE_HOLD_MS, this.#channels.closed, () => {});
    return this.#end(exit);
  }

  #end(exit: ProcessExit): EndedProcess {
    this.#phase = 'ended';
    if (this.#deadline) clearTimeout(this.#deadline);
    const end = endEvent(exit, this.#isExpired, this.#leaf?.usage(!this.#isChild) ?? null);
    this.output.end(end);
    this.#channels.discard();
    this.#leaf?.release();
    const last = { ...this.state, leaf: null, end, endedAt: monotonicMs() };
    return new EndedProcess(last, this.output, this.#record, this.#channels);
  }
}
