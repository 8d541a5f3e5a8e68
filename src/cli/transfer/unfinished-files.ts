import { rmSync } from 'node:fs';
import process from 'node:process';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Files that nobody can use before they are complete. A signal that ends this program removes them. */
export class UnfinishedFiles {
  readonly #paths = new Set<string>();

  add(path: string): void {
    if (this.#paths.size === 0) for (const signal of SIGNALS) process.on(signal, this.#onSignal);
    this.#paths.add(path);
  }

  delete(path: string): void {
    this.#paths.delete(path);
    if (this.#paths.size === 0) for (const signal of SIGNALS) process.off(signal, this.#onSignal);
  }

  readonly #onSignal = (signal: NodeJS.Signals): void => {
    for (const path of this.#paths) {
      rmSync(path, { force: true });
      this.delete(path);
    }
    // Nobody handles it any more, so that it ends this program as it would have done.
    process.kill(process.pid, signal);
  };
}
