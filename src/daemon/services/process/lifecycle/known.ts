import { monotonicMs } from '../../../../base/monotonic.ts';
import type { ManagedProcess } from './process.ts';
import { pick, type Selector } from './selector.ts';

/** How long clients can connect to a process after its end, in milliseconds. */
export const RETENTION_MS = 30_000;
/** Those that end within this time are forgotten together, in milliseconds: a timer for each would cost more than all else of it. */
const TOGETHER_MS = 100;

/** The processes that clients can name, by their pids. */
export class KnownProcesses {
  readonly #running = new Map<number, ManagedProcess>();
  readonly #retained = new Map<number, ManagedProcess>();
  /** Those that have ended, also when their pid belongs to a later process, in the order of their ends. */
  readonly #ended = new Set<ManagedProcess>();

  /** In the order of their start. */
  get running(): ManagedProcess[] {
    return [...this.#running.values()];
  }

  get all(): ManagedProcess[] {
    return [...this.#retained.values(), ...this.#running.values()];
  }

  /** A running process. */
  find(selector: Selector): ManagedProcess | null {
    return pick(this.#running, selector) ?? null;
  }

  /** A running process, or one that ended less than 30 s ago. */
  findRetained(selector: Selector): ManagedProcess | null {
    return this.find(selector) ?? pick(this.#retained, selector) ?? null;
  }

  /** Adds a process that runs. */
  add(process: ManagedProcess): void {
    this.#retained.delete(process.pid);
    this.#running.set(process.pid, process);
    void process.ended.then(() => this.retire(process));
  }

  /** Keeps a process that has ended until 30 s after its end. To be called in the order of the ends. */
  retire(process: ManagedProcess): void {
    remove(this.#running, process);
    this.#retained.set(process.pid, process);
    this.#ended.add(process);
    if (this.#ended.size === 1) this.#forgetLater(process);
  }

  #forgetLater(first: ManagedProcess): void {
    const last = first.endedAt + TOGETHER_MS;
    const dueMs = last + RETENTION_MS - monotonicMs();
    setTimeout(() => this.#forget(last), Math.max(0, dueMs)).unref();
  }

  /** Forgets those that had ended until then, by `monotonicMs`. */
  #forget(last: number): void {
    for (const process of this.#ended) {
      if (process.endedAt > last) {
        this.#forgetLater(process);
        break;
      }
      this.#ended.delete(process);
      remove(this.#retained, process);
      process.forgetOutput();
    }
  }
}

/** The pid may already belong to a later process. */
function remove(processes: Map<number, ManagedProcess>, process: ManagedProcess): void {
  if (processes.get(process.pid) === process) processes.delete(process.pid);
}
