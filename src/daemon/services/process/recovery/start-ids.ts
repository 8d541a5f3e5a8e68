import { isDeepStrictEqual } from 'node:util';
import { EnvdError } from '../../../../base/errors.ts';
import type { ManagedProcess } from '../lifecycle/process.ts';
import { keptOf, shortened } from '../lifecycle/process-config.ts';
import type { StartRequest } from '../lifecycle/start.ts';
import type { Reader } from '../output/reader.ts';

/** The idempotency keys of clients. */
export class StartIds {
  readonly #retentionMs: number;
  /** Starts in progress, running processes, and ended ones for a time. */
  readonly #starts = new Map<string, Promise<ManagedProcess>>();
  readonly #ids = new WeakMap<ManagedProcess, string>();

  /** `retentionMs`: how long an id is remembered after the end of its process, in milliseconds. */
  constructor(retentionMs: number) {
    this.#retentionMs = retentionMs;
  }

  get(startId: string): Promise<ManagedProcess> | undefined {
    return this.#starts.get(startId);
  }

  /** Forgets the id with the process, or at once when the start fails. */
  remember(startId: string, starting: Promise<ManagedProcess>): void {
    this.#starts.set(startId, starting);
    const forget = () => this.#starts.delete(startId);
    starting
      .then((process) => process.ended)
      .then(() => setTimeout(forget, this.#retentionMs).unref(), forget);
  }

  /** This process was started with the id. */
  assign(startId: string, process: ManagedProcess): void {
    this.#ids.set(process, startId);
  }

  /** A process of an earlier program was started with the id. */
  continueWith(startId: string, process: ManagedProcess): void {
    this.remember(startId, Promise.resolve(process));
    this.assign(startId, process);
  }

  /** With which id a process was started; null: with none. Starts in progress, which may fail, are not waited for. */
  idOf(process: ManagedProcess): string | null {
    return this.#ids.get(process) ?? null;
  }
}

/** A feed of the whole output of a process, for a repeated start. */
export function attach(process: ManagedProcess, { startId, config }: StartRequest): Reader {
  if (!isDeepStrictEqual(shortened(process.config), shortened(keptOf(config, true)))) {
    throw new EnvdError(
      'already_exists',
      `start id '${startId}' belongs to process ${process.pid}, which runs another command: use a new id`,
    );
  }
  return process.read({ stdout: 0, stderr: 0, pty: 0 });
}
