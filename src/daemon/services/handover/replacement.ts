import { closeSync } from 'node:fs';
import type { Logger } from 'pino';
import { EnvdError, isSystemError, messageOf } from '../../../base/errors.ts';
import { closeAll } from '../../linux/memory/message-queue.ts';
import { type Command, forNextProgram, replaceProgram } from '../../linux/processes/program.ts';
import type { WriteGate } from '../pause/write-gate.ts';
import type { ProcessTable } from '../process/table.ts';
import { writeState } from './state.ts';
import type { Succession } from './succession.ts';

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

/** What serves clients. */
export interface Serving {
  /** Accepts no connection any more; closes idle ones, and after `limitMs` all. */
  leave(limitMs: number): Promise<void>;
}

/** What a replacement stops. */
export interface Replaced {
  readonly app: Serving;
  /** Descriptor of the listening socket. */
  readonly listener: number;
  readonly processes: ProcessTable;
  readonly gate: WriteGate;
  readonly watcher: Disposable;
  /** Ends all streams. */
  readonly shutdown: AbortController;
  /** Aborts when the daemon stops; then it is no longer replaced. */
  readonly stopping: AbortSignal;
}

export interface ReplacementOptions {
  /** The version of the build. */
  readonly version: string;
  /** The program that replaces this one, and how this one was started, in case the other cannot be executed after all. */
  readonly commands: { readonly next: Command; readonly own: Command };
  /** The environment of a later program, with the descriptor of its state. */
  readonly environmentWith: (state: number) => NodeJS.ProcessEnv;
}

/** Replaces the program of this process (docs/decisions/034-upgrades-in-place.md). */
export class Replacement {
  readonly #daemon: Replaced;
  readonly #succession: Succession;
  readonly #options: ReplacementOptions;
  readonly #logger: Logger;

  constructor(daemon: Replaced, succession: Succession, options: ReplacementOptions, logger: Logger) {
    this.#daemon = daemon;
    this.#succession = succession;
    this.#options = options;
    this.#logger = logger;
  }

  /**
   * Writes the state and drops it. Throws `unavailable` while the file system is frozen or the daemon stops, `resource_exhausted`
   * when the state is too large, or there is no memory or no descriptor for it.
   */
  assertPossible(): void {
    this.#daemon.stopping.throwIfAborted();
    this.#daemon.gate.assertOpen();
    this.#tryState();
  }

  /**
   * Does not return when the program has been replaced. Throws `unavailable` when starts do not complete, `resource_exhausted`
   * when the state cannot be handed over, and the reason when the daemon stops meanwhile; the daemon goes on then.
   */
  async replace(): Promise<void> {
    const { processes, stopping } = this.#daemon;
    stopping.throwIfAborted();
    try {
      if (!(await processes.refuseStarts('the daemon is being replaced, try again', STARTS_MS))) {
        stopping.throwIfAborted();
        const limit = `${STARTS_MS / 1000} s`;
        throw new EnvdError('unavailable', `starts under way did not complete within ${limit}`);
      }
      this.#logger.info('upgrading');
      await processes.settle(READERS_MS);
      stopping.throwIfAborted();
      // Nothing has ended yet, and the state can hardly grow any more.
      this.#tryState();
      await this.#leave();
    } catch (error) {
      // A stop, too, waits for the output of processes.
      processes.goOn();
      throw error;
    }
  }

  /** Throws the reason when the daemon stops meanwhile; otherwise there is no way back. */
  async #leave(): Promise<void> {
    const { app, shutdown, stopping, gate, watcher, processes } = this.#daemon;
    // The server closes its socket; further connections wait in the backlog of the duplicate.
    const listener = forNextProgram(this.#daemon.listener);
    shutdown.abort(new EnvdError('unavailable', 'the daemon is being replaced, resume'));
    await app.leave(RESPONSES_MS);
    await gate
      .whenIdle(CHANGES_MS)
      .catch((error) => this.#logger.warn({ reason: messageOf(error) }, 'files are being changed'));
    if (stopping.aborted) closeSync(listener);
    // No signal is taken from here on, and nothing is read or reaped.
    stopping.throwIfAborted();
    try {
      // Should the later program end before it listens.
      processes.handOver();
      const state = writeState(this.#options.version, this.#succession.snapshot(listener), forNextProgram);
      watcher[Symbol.dispose]();
      this.#execute(forNextProgram(state));
    } catch (error) {
      this.#logger.fatal({ reason: messageOf(error) }, 'cannot hand over');
    }
    // Processes run on; the service manager starts the daemon again.
    process.exit(1);
  }

  #tryState(): void {
    const copies: number[] = [];
    const copy = (descriptor: number) => {
      const made = forNextProgram(descriptor);
      copies.push(made);
      return made;
    };
    try {
      const snapshot = this.#succession.snapshot(copy(this.#daemon.listener));
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
    const { commands, environmentWith } = this.#options;
    for (const program of [commands.next, commands.own]) {
      try {
        replaceProgram(program, environmentWith(state));
      } catch (error) {
        this.#logger.error({ program: program[0], reason: messageOf(error) }, 'cannot execute');
      }
    }
  }
}
