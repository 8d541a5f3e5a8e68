import type { ManagedProcess } from './process.ts';
import { pick, type Selector } from './selector.ts';

/** How long clients can connect to a process after its end, in milliseconds. */
export const RETENTION_MS = 30_000;

/** The processes that clients can name, by their pids. */
export class KnownProcesses {
  readonly #running = new Map<number, ManagedProcess>();
  readonly #retained = new Map<number, ManagedProcess>();

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

  /** Keeps a process that has ended for that time. */
  retire(process: ManagedProcess, retentionMs = RETENTION_MS): void {
    // The pid may already belong to a later process.
    const removeFrom = (processes: Map<number, ManagedProcess>) => {
      if (processes.get(process.pid) === process) processes.delete(process.pid);
    };
    removeFrom(this.#running);
    this.#retained.set(process.pid, process);
    const forget = () => {
      removeFrom(this.#retained);
      process.forgetOutput();
    };
    setTimeout(forget, Math.max(0, retentionMs)).unref();
  }
}
