import { isDeepStrictEqual } from 'node:util';
import { EnvdError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import type { EndedProcess } from './ended.ts';
import type { ManagedProcess } from './process.ts';
import { keptOf, type ProcessConfig, shortened } from './process-config.ts';
import type { ProcessRecord } from './records.ts';

/** Clients can connect to a process for this time after its end, in milliseconds. */
const RETENTION_MS = 30_000;
/** Ends within this time, in milliseconds, are forgotten together, because a timer for each would be expensive. */
const TOGETHER_MS = 100;

/** A client names a process by its pid or by a tag. */
export type Selector = { readonly pid: number } | { readonly tag: string };

type AnyProcess = ManagedProcess | EndedProcess;

/** Reads the name of a process in a URL: digits alone are a pid, other text is a tag. */
export function selectorIn(name: string): Selector {
  return /^\d{1,10}$/.test(name) ? { pid: Number(name) } : { tag: name };
}

/** Finds the processes that clients can name, by their pids and by the ids of their starts. */
export class ProcessIndex {
  readonly #running = new Map<number, ManagedProcess>();
  readonly #retained = new Map<number, EndedProcess>();
  /** The ended processes in the order of their ends, even if their pid belongs to a later process. */
  readonly #ended = new Set<EndedProcess>();
  /** Starts under way, running processes and those that have ended, by idempotency key. */
  readonly #starts = new Map<string, Promise<AnyProcess>>();
  /** These ids have starts that an earlier daemon has begun, and whose processes are not known. */
  readonly #lost = new Set<string>();

  /** Returns the running processes in the order of their start. */
  get running(): ManagedProcess[] {
    return [...this.#running.values()];
  }

  get all(): AnyProcess[] {
    return [...this.#retained.values(), ...this.#running.values()];
  }

  /** Returns a running process. Throws `not_found`. */
  find(selector: Selector): ManagedProcess {
    return pick(this.#running, selector) ?? notFound(selector);
  }

  /** Returns a running process, or one that ended less than 30 s ago. Throws `not_found`. */
  findRetained(selector: Selector): AnyProcess {
    return pick(this.#running, selector) ?? pick(this.#retained, selector) ?? notFound(selector);
  }

  /** Returns what was started with this id, or is being started. Throws `aborted` for an id that is lost. */
  startedWith(startId: string): Promise<AnyProcess> | undefined {
    if (!this.#lost.has(startId)) return this.#starts.get(startId);
    const text = 'the daemon was killed while it started the process: see what it did, and use a new id';
    throw new EnvdError('aborted', `start id '${startId}' was used, and ${text}`);
  }

  /** Refuses this id for 30 s, because its program may have run. Drops the record then. */
  lose(startId: string, record: Pick<ProcessRecord, 'drop'>): void {
    this.#lost.add(startId);
    const forget = () => {
      this.#lost.delete(startId);
      record.drop();
    };
    setTimeout(forget, RETENTION_MS).unref();
  }

  /** Returns the ids that are refused. */
  get lost(): string[] {
    return [...this.#lost];
  }

  /** Knows a start by its id until its process is forgotten, or the start fails. */
  starting(startId: string, start: Promise<AnyProcess>): void {
    this.#starts.set(startId, start);
    start.catch(() => this.#starts.delete(startId));
  }

  add(process: ManagedProcess): void {
    this.#retained.delete(process.pid);
    this.#running.set(process.pid, process);
    if (process.startId !== null) this.#starts.set(process.startId, Promise.resolve(process));
    void process.ended.then((ended) => {
      remove(this.#running, process);
      this.retire(ended);
    });
  }

  /** Keeps a process that has ended until 30 s after its end. Call it in the order in which processes end. */
  retire(process: EndedProcess): void {
    this.#retained.set(process.pid, process);
    if (process.startId !== null) this.#starts.set(process.startId, Promise.resolve(process));
    this.#ended.add(process);
    if (this.#ended.size === 1) this.#forgetLater(process);
  }

  #forgetLater(first: EndedProcess): void {
    const last = first.endedAt + TOGETHER_MS;
    const dueMs = last + RETENTION_MS - monotonicMs();
    setTimeout(() => this.#forget(last), Math.max(0, dueMs)).unref();
  }

  /** Forgets the processes that had ended until then, by `monotonicMs`. */
  #forget(last: number): void {
    for (const process of this.#ended) {
      if (process.endedAt > last) {
        this.#forgetLater(process);
        break;
      }
      this.#ended.delete(process);
      remove(this.#retained, process);
      if (process.startId !== null) this.#starts.delete(process.startId);
      process.forget();
    }
  }
}

/** Throws `already_exists` unless the process runs the command of a repeated start with its id. */
export function requireSameCommand({ pid, startId, config }: AnyProcess, wanted: ProcessConfig): void {
  if (isDeepStrictEqual(shortened(config), shortened(keptOf(wanted, true)))) return;
  throw new EnvdError(
    'already_exists',
    `start id '${startId}' belongs to process ${pid}, which runs another command: use a new id`,
  );
}

/** Returns the process. If several have the same tag, it is the latest. */
function pick<P extends AnyProcess>(processes: ReadonlyMap<number, P>, selector: Selector): P | undefined {
  if ('pid' in selector) return processes.get(selector.pid);
  return [...processes.values()].findLast((process) => process.tag === selector.tag);
}

function notFound(selector: Selector): never {
  const what = 'pid' in selector ? `pid ${selector.pid}` : `tag ${selector.tag}`;
  throw new EnvdError('not_found', `process with ${what} not found`);
}

/** Removes a process from a map, unless its pid already belongs to a later one. */
function remove<P extends AnyProcess>(processes: Map<number, P>, process: P): void {
  if (processes.get(process.pid) === process) processes.delete(process.pid);
}
