import { within } from '../../../../base/abort.ts';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import type { TerminalSize } from '../../../linux/processes/pty.ts';
import type { ProcessExit } from '../../../linux/processes/spawn.ts';
import { SIGKILL, signalGroup } from '../../../linux/system/signals.ts';
import type { Leaf } from '../cgroups/leaf.ts';
import { type Channels, CLOSED } from '../output/channels.ts';
import { type EndEvent, endEvent, type Offsets } from '../output/events.ts';
import { Input } from '../output/input.ts';
import type { Output } from '../output/output.ts';
import type { Reader } from '../output/reader.ts';
import { type KeptConfig, shortened } from './process-config.ts';
import type { ProcessParts, ProcessPast, ProcessState } from './process-state.ts';

/** How long the end event waits for background children that hold the pipes open, in milliseconds. Not after a kill. */
const PIPE_HOLD_MS = 2000;

/**
 * A process from its start to its end. State `running`: it takes input and signals. `reaped`: it has exited, and its
 * output is being delivered. `ended`: the end event has been appended. There may be thousands: all that is not needed is dropped.
 */
export class ManagedProcess {
  readonly pid: number;
  /** What was asked for, as far as it is kept; `shortened` once it has ended. */
  config: KeptConfig;
  readonly tag: string | null;
  /** It had ended when it was reported as started: its end event follows at once, unless others hold its output open. */
  readonly isOver: boolean;
  /** Resolves with the end event, once that has been appended to the output. */
  readonly ended: Promise<EndEvent>;

  /** Called when its output is forgotten and no process holds that open. */
  onForgotten: () => void = () => {};
  /** Called when its state has changed as far as a later program needs to know it. */
  onChange: () => void = () => {};
  #deadlineAt: number | null = null;
  #state: 'running' | 'reaped' | 'ended' = 'running';
  #exit: ProcessExit | null = null;
  #end: EndEvent | null = null;
  #endedAt = 0;
  #killed = false;
  #expired = false;
  #channels: Channels;
  #input: Input | null;
  readonly #output: Output;
  #leaf: Leaf | null;
  readonly #isChild: boolean;
  #pidfd: number | null;

  constructor({ config, tag, spawned, channels, output, leaf, past }: ProcessParts) {
    ({ pid: this.pid, isOver: this.isOver, isChild: this.#isChild, pidfd: this.#pidfd } = spawned);
    this.config = config;
    this.tag = tag;
    this.#channels = channels;
    this.#output = output;
    this.#leaf = leaf;
    const { input, inputClosed } = channels;
    this.#input = input && new Input(input, this.#inputName());
    void inputClosed?.then(() => this.onChange());
    this.ended = past?.end
      ? Promise.resolve(this.#ended(past.end))
      : spawned.exit.then((exit) => this.#finish(exit));
    if (past) this.#continue(past);
    if (past?.end) channels.discard();
  }

  get hasCgroup(): boolean {
    return this.#leaf !== null;
  }
  get isTerminal(): boolean {
    return this.#channels.kind === 'terminal';
  }

  /**
   * A reader of the start event and all further events; with `from`, the kept output from these offsets on comes first.
   * Throws `invalid_argument` for an offset that has not been reached.
   */
  read(from: Offsets | null): Reader {
    return this.#output.read(this.pid, from);
  }

  /** Throws `failed_precondition` when the process has no such input or it is closed. */
  write(kind: 'stdin' | 'pty', bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.isTerminal !== (kind === 'pty')) {
      const wanted = this.isTerminal ? 'has a terminal: send pty input' : 'has no terminal: send stdin input';
      throw new EnvdError('failed_precondition', `process ${this.pid} ${wanted}`);
    }
    return this.#openedInput().write(bytes, signal);
  }

  /** Throws `failed_precondition` for a terminal; its input ends with the byte 0x04 instead. */
  closeStdin(): void {
    if (this.isTerminal) {
      const text = 'is a terminal and cannot be closed: send the byte 0x04 (end of transmission)';
      throw new EnvdError('failed_precondition', `stdin of process ${this.pid} ${text}`);
    }
    this.#input?.close();
    this.onChange();
  }

  /** Throws `failed_precondition` without a terminal and `invalid_argument` for an impossible size. */
  resize(size: TerminalSize): void {
    this.#channels.resize(size);
  }

  /** Kills it at its deadline; false as `kill`. */
  expire(): boolean {
    this.#expired = true;
    this.onChange();
    return this.kill();
  }

  /** When its deadline kills it, by `monotonicMs`; null: never. */
  get deadlineAt(): number | null {
    return this.#deadlineAt;
  }

  set deadlineAt(time: number) {
    this.#deadlineAt = time;
    this.onChange();
  }

  /**
   * Kills the process and all its descendants; without cgroups, its process group. False when only the process group
   * could be signalled, because no descriptor was free to read the cgroup.
   */
  kill(): boolean {
    try {
      if (this.#leaf) this.signalTree(SIGKILL);
      else this.signalGroup(SIGKILL);
      return true;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      if (this.#state === 'running') signalGroup(this.pid, SIGKILL);
      return false;
    }
  }

  /** When it has ended, by `monotonicMs`. */
  get endedAt(): number {
    return this.#endedAt;
  }

  /** Reads no more output until `releaseOutput`. */
  holdOutput(): void {
    this.#output.hold();
  }

  releaseOutput(): void {
    this.#output.release();
  }

  /** Whether a reader has not taken all output. */
  get hasUnread(): boolean {
    return this.#output.hasUnread;
  }

  /** Its state for a later program of this process. */
  get stateWithInput(): ProcessState {
    return { ...this.state, unwritten: this.#input?.unwritten ?? null };
  }

  /** Its state for a program that comes after a crash: without input that has not been written, which changes too often. */
  get state(): ProcessState {
    const { pid, config, tag, deadlineAt } = this;
    const { kind, ends } = this.#channels;
    return {
      pid,
      config,
      tag,
      kind,
      ends,
      deadlineAt,
      pidfd: this.#pidfd,
      isChild: this.#isChild,
      leaf: this.#leaf?.path ?? null,
      totals: this.#output.totals,
      number: this.#output.number,
      unwritten: null,
      isInputClosed: this.#input?.isClosed ?? true,
      isKilled: this.#killed,
      isExpired: this.#expired,
      exit: this.#exit,
      end: this.#end,
      endedAt: this.#endedAt,
    };
  }

  /** Drops the output that is kept for clients that reconnect. */
  forgetOutput(): void {
    this.#output.forget();
    void this.#channels.closed.then(() => this.onForgotten());
  }

  /** Signals the whole process group; succeeds also when that has just ended. Throws the reason when `caller` aborts. */
  async signal(signal: number, caller: AbortSignal): Promise<void> {
    // After the process has been reaped its process group id may be reused by another group. Others reap a stranger.
    const mayBeGone = this.#state !== 'running' || !this.#isChild;
    if (mayBeGone && this.#leaf) await this.#leaf.signalGroup(this.pid, signal, caller);
    else this.signalGroup(signal);
  }

  /** Signals the process group by its id, without a look at whose it is. */
  signalGroup(signal: number): void {
    if (this.#state === 'ended') return;
    if (signal === SIGKILL) this.#killed = true;
    signalGroup(this.pid, signal);
  }

  /** Signals the process and all its descendants, in whatever session. Throws `failed_precondition` without cgroups. */
  signalTree(signal: number): void {
    if (!this.#leaf) {
      const text = `process ${this.pid} has no cgroup of its own: its tree cannot be signalled`;
      throw new EnvdError('failed_precondition', text);
    }
    if (signal === SIGKILL) this.#killed = true;
    this.#leaf.signal(signal);
  }

  #continue({ unwritten, isInputClosed, isKilled, isExpired, exit, endedAt }: ProcessPast): void {
    this.#exit = exit;
    this.#killed = isKilled;
    this.#expired = isExpired;
    this.#endedAt = endedAt;
    if (unwritten) this.#input?.continueWith(unwritten);
    if (isInputClosed) this.#input?.close();
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
    this.#exit = exit;
    this.#pidfd = null;
    const turn = setImmediate(() => this.onChange());
    const isHeld = await this.#channels.drained();
    // Most end at once.
    if (!isHeld) clearImmediate(turn);
    else if (!this.#killed) await within(PIPE_HOLD_MS, this.#channels.closed, () => {});
    const event = this.#ended(endEvent(exit, this.#expired, this.#leaf?.usage(!this.#isChild) ?? null));
    this.#input?.close();
    this.#input = null;
    this.#channels.discard();
    void this.#channels.closed.then(() => {
      this.#channels = CLOSED[this.#channels.kind];
    });
    this.#leaf?.release();
    this.#leaf = null;
    this.onChange();
    return event;
  }

  #ended(event: EndEvent): EndEvent {
    this.#state = 'ended';
    this.config = shortened(this.config);
    this.#end = event;
    this.#endedAt = monotonicMs();
    this.#output.end(event);
    return event;
  }
}
