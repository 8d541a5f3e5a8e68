import { rmSync } from 'node:fs';
import process from 'node:process';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Files that nobody can use before they are complete. A signal that ends this program removes them. */
export class UnfinishedFiles {
  readonly #paths = new Set<string>();
  #isOn = false;

  add(path: string): void {
    this.#paths.add(path);
    if (this.#isOn) return;
    // The handlers stay: with those of a file that is complete, a signal that Node has caught and not told yet would be lost.
    this.#isOn = true;
    for (const signal of SIGNALS) process.on(signal, this.#onSignal);
  }

  delete(path: string): void {
    this.#paths.delete(path);
  }

  readonly #onSignal = (signal: NodeJS.Signals): void => {
    for (const path of this.#paths) rmSync(path, { force: true });
    for (const each of SIGNALS) process.off(each, this.#onSignal);
    // Nobody handles it any more, so that it ends this program as it would have done.
    process.kill(process.pid, signal);
  };
}
