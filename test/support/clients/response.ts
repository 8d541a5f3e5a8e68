import type { ServerResponse } from 'node:http';

/** The part of a response that a batch of frames uses; the simulated kernel takes bytes on request. */
export class FakeResponse {
  /** The written buffers, each as it was at the time of `take`. */
  readonly taken: Buffer[] = [];
  readonly #queue: { bytes: Uint8Array; done: () => void }[] = [];
  #corked = 0;
  readonly #takesAtOnce: boolean;

  constructor(takesAtOnce: boolean) {
    this.#takesAtOnce = takesAtOnce;
  }

  static asResponse(fake: FakeResponse): ServerResponse {
    return fake as unknown as ServerResponse;
  }

  get writableLength(): number {
    return this.#queue.reduce((sum, { bytes }) => sum + bytes.length, 0);
  }

  /** The number of writes that the kernel has not taken. */
  get waiting(): number {
    return this.#queue.length;
  }

  cork(): void {
    this.#corked += 1;
  }

  uncork(): void {
    this.#corked -= 1;
    if (this.#takesAtOnce && this.#corked === 0) this.take();
  }

  write(bytes: Uint8Array, done: () => void = () => {}): void {
    this.#queue.push({ bytes, done });
  }

  /** The kernel takes everything. As in Node, the callbacks run later. */
  take(): void {
    for (const { bytes, done } of this.#queue.splice(0)) {
      this.taken.push(Buffer.from(bytes));
      queueMicrotask(done);
    }
  }
}
