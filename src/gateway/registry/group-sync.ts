import { type FileHandle, open } from 'node:fs/promises';

/**
 * Syncs a file to the disk (fdatasync) in the thread pool. Calls that come while one sync is in flight share the next.
 */
export class GroupSync implements AsyncDisposable {
  readonly #file: FileHandle;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async open(path: string): Promise<GroupSync> {
    return new GroupSync(await open(path, 'r'));
  }

  /** Resolves when everything written before the call is on the disk. */
  sync(): Promise<void> {
    if (!this.#running) return this.#start();
    this.#next ??= this.#running.then(
      () => this.#start(),
      () => this.#start(),
    );
    return this.#next;
  }

  #start(): Promise<void> {
    this.#next = null;
    const running = this.#file.datasync().finally(() => {
      if (this.#running === running) this.#running = null;
    });
    this.#running = running;
    return running;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close();
  }
}
