import type { Unread } from '../../../../base/unread.ts';
import type { SharedMemory } from '../../../linux/memory/shared-memory.ts';
import { PipePoller } from '../../../linux/processes/pipe-ends.ts';
import type { OutputPath } from '../lifecycle/start.ts';
import type { OutputStream } from '../output/events.ts';
import { History } from '../output/history.ts';
import { HistoryBudget } from '../output/history-budget.ts';
import { OutputStore } from '../output/output-store.ts';

/** Limit of all histories together: a multiple of the limit of one, but at most 4 GiB for several. */
const HISTORIES = 64;
const MOST_HISTORY_BYTES = 2 ** 32;

export interface OutputOptions {
  /** Output that is kept of each process for clients that reconnect, in bytes. */
  readonly historyBytes: number;
  /** Bounds what waits for slow readers. */
  readonly unread: Unread;
}

/** What the outputs of all processes share. */
export class OutputPaths {
  /** Bytes of all processes, by stream. */
  readonly written: Record<OutputStream, number> = { stdout: 0, stderr: 0, pty: 0 };
  readonly poller = new PipePoller();
  readonly #options: OutputOptions;
  readonly #histories: HistoryBudget;
  readonly #store: OutputStore;
  /** Number of the last process, in `#store`. */
  #number = 0;

  /** `onMemory` is told when there is kept output. */
  constructor(options: OutputOptions, onMemory: (memory: SharedMemory) => void) {
    const { historyBytes } = options;
    const together = Math.max(historyBytes, Math.min(HISTORIES * historyBytes, MOST_HISTORY_BYTES));
    this.#options = options;
    this.#histories = new HistoryBudget(together);
    this.#store = new OutputStore(historyBytes, together, onMemory);
  }

  /** Descriptor of the kept output; null when it cannot be handed over. */
  get memory(): number | null {
    return this.#store.memory.descriptor;
  }

  /** The path of a new process. */
  next(): OutputPath {
    this.#number += 1;
    const { historyBytes, unread } = this.#options;
    const history = new History(this.#store, this.#number, historyBytes, this.#histories);
    return { poller: this.poller, history, unread, written: this.written };
  }
}
