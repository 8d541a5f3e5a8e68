import { Observable } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { DroppedItem } from './dropped-files.ts';
import { joined } from './file-entry.ts';

/** How far an upload is. */
export interface UploadProgress {
  readonly isRunning: boolean;
  readonly files: number;
  readonly allFiles: number;
  readonly bytes: number;
  readonly allBytes: number;
  /** Bytes a second. */
  readonly rate: number;
  /** What failed, the first of them. */
  readonly problems: readonly string[];
}

const PARALLEL = 3;
const MAX_PROBLEMS = 10;
const TELL_MS = 200;
/** How long the result is shown, in milliseconds, if nothing has failed. */
const SHOWN_MS = 15_000;
const NONE: UploadProgress = {
  ...{ isRunning: false, files: 0, allFiles: 0, bytes: 0, allBytes: 0, rate: 0, problems: [] },
};

/** Uploads files and directories, some at a time. What is added meanwhile comes after the others. */
export class Uploads {
  readonly progress = new Observable<UploadProgress>(NONE);
  readonly #daemon: DaemonClient;
  readonly #waiting: (DroppedItem & { readonly directory: string })[] = [];
  /** The bytes of each transfer that is under way. */
  readonly #underWay = new Map<object, number>();
  #left = new AbortController();
  #done = { files: 0, bytes: 0 };
  #since = 0;
  #running = 0;

  constructor(daemon: DaemonClient) {
    this.#daemon = daemon;
  }

  /** Resolves when all of them, and what was added meanwhile, are through. */
  async add(directory: string, items: readonly DroppedItem[]): Promise<void> {
    if (!this.progress.value.isRunning) {
      this.#left = new AbortController();
      this.#done = { files: 0, bytes: 0 };
      this.#since = performance.now();
      this.progress.set({ ...NONE, isRunning: true });
    }
    for (const item of items) this.#waiting.push({ ...item, directory });
    const size = items.reduce((sum, { file }) => sum + (file?.size ?? 0), 0);
    this.progress.update((told) => ({
      ...told,
      allFiles: told.allFiles + items.length,
      allBytes: told.allBytes + size,
    }));
    const timer = setInterval(() => this.#tell(), TELL_MS);
    await Promise.all(Array.from({ length: PARALLEL }, () => this.#work()));
    clearInterval(timer);
    const result = this.progress.value;
    setTimeout(() => {
      if (this.progress.value === result && result.problems.length === 0) this.dismiss();
    }, SHOWN_MS);
  }

  /** Shows no result any more. */
  dismiss(): void {
    if (!this.progress.value.isRunning) this.progress.set(NONE);
  }

  /** Ends it; files that are there already stay. */
  stop(): void {
    this.#waiting.length = 0;
    this.#left.abort();
  }

  async #work(): Promise<void> {
    if (this.#running >= PARALLEL) return;
    this.#running++;
    for (let item = this.#waiting.shift(); item; item = this.#waiting.shift())
      await this.#send(item, joined(item.directory, item.path)).catch((error: unknown) =>
        this.#complain(`${item?.path}: ${callErrorOf(error).message}`),
      );
    this.#running--;
    this.#tell();
    if (this.#running === 0) this.progress.update((told) => ({ ...told, isRunning: false }));
  }

  async #send({ file }: DroppedItem, path: string): Promise<void> {
    const transfer = {};
    try {
      if (file)
        await this.#daemon.upload(path, file, {
          signal: this.#left.signal,
          onProgress: (bytes) => this.#underWay.set(transfer, bytes),
        });
      else await this.#daemon.unary('filesystem.Filesystem/MakeDir', { path });
      this.#done.files++;
      this.#done.bytes += file?.size ?? 0;
    } finally {
      this.#underWay.delete(transfer);
    }
  }

  #tell(): void {
    const { files } = this.#done;
    const bytes = this.#done.bytes + [...this.#underWay.values()].reduce((sum, each) => sum + each, 0);
    const rate = bytes / Math.max(0.1, (performance.now() - this.#since) / 1000);
    this.progress.update((told) => ({ ...told, files, bytes, rate }));
  }

  #complain(problem: string): void {
    this.progress.update((told) => ({
      ...told,
      problems: [...told.problems, problem].slice(0, MAX_PROBLEMS),
    }));
  }
}
