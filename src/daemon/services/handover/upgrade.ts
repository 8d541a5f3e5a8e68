import { closeSync } from 'node:fs';
import type { Logger } from 'pino';
import { EnvdError, isSystemError, messageOf } from '../../../base/errors.ts';
import type { ExclusiveLock } from '../../../base/exclusion.ts';
import { debug } from '../../../base/program/debug.ts';
import { closeAll } from '../../linux/memory/message-queue.ts';
import {
  type Command,
  forNextProgram,
  hasStuckThread,
  holdSignals,
  replaceProgram,
  takeWaitingSignals,
  tryProgram,
} from '../../linux/processes/program.ts';
import type { WriteGate } from '../pause/write-gate.ts';
import type { ProcessTable } from '../process/table.ts';
import { type Snapshot, writeState, writeVersion } from './state.ts';

/** With this flag the next program only reads the version of the state, and exits. */
const TRIAL_FLAG = '--try-upgrade';
/** The most bytes of a state, because it is in memory beside everything that it was made of. */
const MOST_STATE_BYTES = 256 * 1024 * 1024;
/** How long starts that are under way may take, in milliseconds. Then the upgrade is given up. */
const STARTS_MS = 15_000;
/** How long a job of the thread pool may wait in the kernel, in milliseconds. */
const JOBS_MS = 2000;
/** How long clients of streams may take for the output that was read so far, in milliseconds. */
const READERS_MS = 1000;
/** How long responses may take, in milliseconds. Then their connections are closed. */
const RESPONSES_MS = 500;
/** How long changes of files may take after their clients are gone, in milliseconds. */
const CHANGES_MS = 2000;

export interface UpgradeOptions {
  readonly version: string;
  /**
   * The program that is now at the path of this one, and this one as it was started, in case the other cannot be executed.
   */
  readonly commands: { readonly next: Command; readonly own: Command };
  /** How long the new program may take to load and to read the version of the state, in seconds. */
  readonly upgradeTimeout: number;
  /** Returns the environment of a later program, which names the descriptor of the state. */
  environmentWith(state: number): NodeJS.ProcessEnv;
}

/** The parts of the daemon that an upgrade stops or hands over. */
export interface Upgraded {
  /** `leave` stops accepting connections, closes them as they become idle, and closes all of them after `limitMs`. */
  readonly app: { leave(limitMs: number): Promise<void> };
  readonly listener: number;
  readonly processes: Pick<ProcessTable, 'refuseStarts' | 'settle' | 'goOn' | 'handOver'>;
  readonly gate: WriteGate;
  readonly watcher: Disposable;
  /** Excludes the operations that prepare a pause. */
  readonly lock: ExclusiveLock;
  readonly shutdown: AbortController;
  /** Aborts when the daemon stops. It is not replaced any more then. */
  readonly stopping: AbortSignal;
  /** Resolves when the log is written, which the program would take with it, or when its reader has stalled. */
  logWritten(): Promise<void>;
  /** Returns the state for a later program of this process, which inherits that listening socket. */
  snapshot(listener: number): Snapshot;
}

/** Replaces the program of the daemon by the one that is now at its path (docs/decisions/018-upgrades.md). */
export class Upgrade {
  readonly #options: UpgradeOptions;
  readonly #daemon: Upgraded;
  readonly #logger: Logger;

  constructor(options: UpgradeOptions, daemon: Upgraded, logger: Logger) {
    this.#options = options;
    this.#daemon = daemon;
    this.#logger = logger;
  }

  /**
   * Tries the next program: it must load everything and read the version of the state. Returns a function that replaces this
   * program and that must be called. Throws `failed_precondition` when the next program cannot take over, `unavailable` while
   * another operation holds the lock, the file system is frozen, a job of the thread pool hangs or the daemon stops, and `resource_exhausted` when the state
   * cannot be handed over.
   */
  async prepare(): Promise<() => void> {
    this.#assertPossible();
    const held = this.#daemon.lock.acquire('upgrade');
    try {
      await this.#assertNoJobHangs();
      await this.#try();
      this.#assertPossible();
    } catch (error) {
      held[Symbol.dispose]();
      throw error;
    }
    return () => void this.#replace(held);
  }

  /** Replaces this program, if the next one can take over. Logs why when it cannot, and does nothing when the daemon stops. */
  async start(): Promise<void> {
    // Lines of the log would keep the daemon from its exit as long as signals come.
    if (this.#daemon.stopping.aborted) return;
    try {
      const replace = await this.prepare();
      replace();
    } catch (error) {
      this.#report(error);
    }
  }

  async #try(): Promise<void> {
    const { commands, version, upgradeTimeout } = this.#options;
    const state = writeVersion(version);
    try {
      const { stopping } = this.#daemon;
      await tryProgram([...commands.next, TRIAL_FLAG], state, upgradeTimeout * 1000, stopping);
      debug('handover', 'the next program can take over');
    } finally {
      closeSync(state);
    }
  }

  /** execve(2) would wait for its thread, with the listening socket open and nobody who serves it. */
  async #assertNoJobHangs(): Promise<void> {
    if (!(await hasStuckThread(JOBS_MS))) return;
    const text =
      'cannot upgrade: a call on a file or directory of the guest hangs, for whose end the kernel would wait';
    throw new EnvdError('unavailable', text);
  }

  #assertPossible(): void {
    this.#daemon.stopping.throwIfAborted();
    this.#daemon.gate.assertOpen();
    this.#tryState();
  }

  /** Replaces this program. Returns only when that has failed; the daemon goes on then. */
  async #replace(held: Disposable): Promise<void> {
    try {
      await this.#settle();
      await this.#leave();
    } catch (error) {
      // The daemon also goes on when it is stopping, because a stop waits for the output of processes.
      this.#daemon.processes.goOn();
      this.#report(error);
    } finally {
      held[Symbol.dispose]();
    }
  }

  /** Waits until processes can be handed over. Ends nothing yet. Throws the reason when the daemon stops meanwhile. */
  async #settle(): Promise<void> {
    const { processes, stopping, logWritten } = this.#daemon;
    stopping.throwIfAborted();
    if (!(await processes.refuseStarts('the daemon is being replaced, try again', STARTS_MS))) {
      stopping.throwIfAborted();
      const text = `cannot upgrade: starts of processes did not complete within ${STARTS_MS / 1000} s, try again`;
      throw new EnvdError('unavailable', text);
    }
    this.#logger.info('upgrading');
    await Promise.all([processes.settle(READERS_MS), logWritten()]);
    await this.#assertNoJobHangs();
    stopping.throwIfAborted();
    // The state is tried again now that it can hardly grow any more.
    this.#tryState();
  }

  /**
   * Ends all streams and executes the next program. There is no way back, unless the daemon stops first: it throws the reason
   * then.
   */
  async #leave(): Promise<void> {
    const { app, shutdown, stopping, gate, watcher, processes } = this.#daemon;
    // The server closes its descriptor. Further connections wait in the queue of the socket, which this duplicate keeps
    // open.
    const listener = forNextProgram(this.#daemon.listener);
    shutdown.abort(new EnvdError('unavailable', 'the daemon is being replaced: connect again'));
    await app.leave(RESPONSES_MS);
    await gate
      .whenIdle(CHANGES_MS, 'upgrade')
      .catch((error) =>
        this.#logger.warn({ reason: messageOf(error) }, 'files are still being changed: upgrading anyway'),
      );
    await holdSignals();
    if (stopping.aborted) {
      takeWaitingSignals();
      closeSync(listener);
    }
    // The event loop does not run from here on, so nothing is read or reaped.
    stopping.throwIfAborted();
    try {
      // The records stay, so that another program can continue with them if the next one ends before it listens.
      processes.handOver();
      const state = writeState(this.#options.version, this.#daemon.snapshot(listener), forNextProgram);
      watcher[Symbol.dispose]();
      this.#execute(forNextProgram(state));
    } catch (error) {
      this.#logger.fatal(
        { reason: messageOf(error) },
        'cannot hand over to the next program: exiting, processes continue',
      );
    }
    // The processes of clients go on, and the service manager starts the daemon again.
    process.exit(1);
  }

  /**
   * Writes the state and drops it. Throws `resource_exhausted` when the state is too large, or there are no memory or
   * descriptors for it.
   */
  #tryState(): void {
    const copies: number[] = [];
    const copy = (descriptor: number) => {
      const made = forNextProgram(descriptor);
      copies.push(made);
      return made;
    };
    try {
      const snapshot = this.#daemon.snapshot(copy(this.#daemon.listener));
      const state = writeState(this.#options.version, snapshot, copy, MOST_STATE_BYTES);
      copies.push(state);
      copy(state);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      throw new EnvdError('resource_exhausted', `cannot hand over: ${messageOf(error)}`, { cause: error });
    } finally {
      closeAll(copies);
    }
  }

  /** Executes the next program or, if that fails, this one again. Returns when neither could be executed. */
  #execute(state: number): void {
    const { next, own } = this.#options.commands;
    for (const program of [next, own]) {
      try {
        replaceProgram(program, this.#options.environmentWith(state));
      } catch (error) {
        this.#logger.error({ program: program[0], reason: messageOf(error) }, 'cannot execute a program');
      }
    }
  }

  #report(error: unknown): void {
    this.#logger.error({ reason: messageOf(error) }, 'cannot upgrade: the daemon continues');
  }
}
