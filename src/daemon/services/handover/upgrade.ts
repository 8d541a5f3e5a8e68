import { closeSync } from 'node:fs';
import type { Logger } from 'pino';
import { EnvdError, isSystemError, messageOf } from '../../../base/errors.ts';
import type { ExclusiveLock } from '../../../base/exclusion.ts';
import { debug } from '../../../base/program/debug.ts';
import { closeAll } from '../../linux/memory/message-queue.ts';
import { type Command, forNextProgram, replaceProgram, tryProgram } from '../../linux/processes/program.ts';
import type { WriteGate } from '../pause/write-gate.ts';
import type { ProcessTable } from '../process/table.ts';
import { type Snapshot, writeState, writeVersion } from './state.ts';

/** The flag that makes the daemon run only the trial. */
const TRIAL_FLAG = '--try-upgrade';
/** The most bytes of a state that is handed over. It is in memory beside what it is made of. */
const MOST_STATE_BYTES = 256 * 1024 * 1024;
/** How long starts under way may take, in milliseconds, before the upgrade is given up. */
const STARTS_MS = 15_000;
/** How long clients of streams may take to read the output read so far, in milliseconds. */
const READERS_MS = 1000;
/** How long responses may take, in milliseconds; then their connections are closed. */
const RESPONSES_MS = 500;
/** How long changes of files may take to complete after their clients are gone, in milliseconds. */
const CHANGES_MS = 2000;

export interface UpgradeOptions {
  /** The version of the build. */
  readonly version: string;
  /** The program now at the path of this one; and how this one was started, should the other not be executed after all. */
  readonly commands: { readonly next: Command; readonly own: Command };
  /** How long the new program may take to load and to read the version of the state, in seconds. */
  readonly upgradeTimeout: number;
  /** The environment of a later program, with the descriptor of its state. */
  environmentWith(state: number): NodeJS.ProcessEnv;
}

/** The parts of the daemon that an upgrade stops, and their state. */
export interface Upgraded {
  /** `leave` accepts no connection any more; it closes idle ones, and all of them after some milliseconds. */
  readonly app: { leave(limitMs: number): Promise<void> };
  /** Descriptor of the listening socket. */
  readonly listener: number;
  readonly processes: Pick<ProcessTable, 'refuseStarts' | 'settle' | 'goOn' | 'handOver'>;
  readonly gate: WriteGate;
  readonly watcher: Disposable;
  /** Excludes the operations before a pause. */
  readonly lock: ExclusiveLock;
  /** Ends all streams. */
  readonly shutdown: AbortController;
  /** Aborts when the daemon stops; then it is no longer replaced. */
  readonly stopping: AbortSignal;
  /** The state for a later program of this process, which inherits that listening socket. */
  snapshot(listener: number): Snapshot;
}

/** Replaces the program of the daemon by the one now at its path (docs/decisions/018-upgrades.md). */
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
   * Tries the program: it must load everything and read the version of the state. The result replaces this program, and
   * must be called. Throws `failed_precondition` when the program cannot take over, `unavailable` while another operation
   * holds the lock, the file system is frozen or the daemon stops, `resource_exhausted` when the state cannot be handed over.
   */
  async prepare(): Promise<() => void> {
    this.#assertPossible();
    const held = this.#daemon.lock.acquire('upgrade');
    try {
      await this.#try();
      this.#assertPossible();
    } catch (error) {
      held[Symbol.dispose]();
      throw error;
    }
    return () => void this.#replace(held);
  }

  /** Tries the program and replaces this one, if it can take over. */
  async start(): Promise<void> {
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
      await tryProgram([...commands.next, TRIAL_FLAG], state, upgradeTimeout * 1000);
      debug('handover', 'the next program can take over');
    } finally {
      closeSync(state);
    }
  }

  #assertPossible(): void {
    this.#daemon.stopping.throwIfAborted();
    this.#daemon.gate.assertOpen();
    this.#tryState();
  }

  /** Returns only when this program has not been replaced; the daemon goes on then. */
  async #replace(held: Disposable): Promise<void> {
    try {
      await this.#settle();
      await this.#leave();
    } catch (error) {
      // A stop, too, waits for the output of processes.
      this.#daemon.processes.goOn();
      this.#report(error);
    } finally {
      held[Symbol.dispose]();
    }
  }

  /** Ends nothing yet. Throws the reason when the daemon stops meanwhile. */
  async #settle(): Promise<void> {
    const { processes, stopping } = this.#daemon;
    stopping.throwIfAborted();
    if (!(await processes.refuseStarts('the daemon is being replaced, try again', STARTS_MS))) {
      stopping.throwIfAborted();
      const text = `cannot upgrade: starts of processes did not complete within ${STARTS_MS / 1000} s, try again`;
      throw new EnvdError('unavailable', text);
    }
    this.#logger.info('upgrading');
    await processes.settle(READERS_MS);
    stopping.throwIfAborted();
    // The state can hardly grow any more.
    this.#tryState();
  }

  /** Throws the reason when the daemon stops meanwhile; otherwise there is no way back. */
  async #leave(): Promise<void> {
    const { app, shutdown, stopping, gate, watcher, processes } = this.#daemon;
    // The server closes its socket; further connections wait in the backlog of the duplicate.
    const listener = forNextProgram(this.#daemon.listener);
    shutdown.abort(new EnvdError('unavailable', 'the daemon is being replaced: connect again'));
    await app.leave(RESPONSES_MS);
    await gate
      .whenIdle(CHANGES_MS)
      .catch((error) =>
        this.#logger.warn({ reason: messageOf(error) }, 'files are still being changed: upgrading anyway'),
      );
    if (stopping.aborted) closeSync(listener);
    // No signal is taken from here on, and nothing is read or reaped.
    stopping.throwIfAborted();
    try {
      // A third program continues with the records if the later one ends before it listens.
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
    // Processes run on; the service manager starts the daemon again.
    process.exit(1);
  }

  /**
   * Writes the state and drops it. Throws `resource_exhausted` when it is too large, or there is no memory or no descriptor
   * for it.
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

  /** Returns when no program could be executed. */
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
