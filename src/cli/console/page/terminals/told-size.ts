import type { DaemonClient } from '../wire/daemon-client.ts';
import type { CellSize } from '../wire/messages.ts';

/** Tells a process the newest size of its terminal, one call at a time. */
export class ToldSize {
  readonly #daemon: DaemonClient;
  /** null: there is no process now that could be told. */
  readonly #pid: () => number | null;
  #size: CellSize | null = null;
  #isTelling = false;

  constructor(daemon: DaemonClient, pid: () => number | null) {
    this.#daemon = daemon;
    this.#pid = pid;
  }

  tell(size: CellSize): void {
    this.#size = size;
    if (!this.#isTelling) void this.#run();
  }

  async #run(): Promise<void> {
    this.#isTelling = true;
    while (this.#size !== null) {
      const pid = this.#pid();
      const size = this.#size;
      this.#size = null;
      if (pid !== null)
        await this.#daemon
          .unary('process.Process/Update', { process: { pid }, pty: { size } })
          .catch(() => {});
    }
    this.#isTelling = false;
  }
}
