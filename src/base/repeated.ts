/**
 * Work that is repeated in the background, one run at a time. Its timer does not keep the process alive.
 */
export class Repeated implements Disposable {
  readonly #work: () => Promise<number>;
  /** Null while it works. */
  #timer: NodeJS.Timeout | null = null;
  #isOver = false;

  /**
   * @param firstMs the wait before the first run, in milliseconds; null: it begins now
   * @param work does not fail; resolves with the wait before the next run, in milliseconds
   */
  constructor(firstMs: number | null, work: () => Promise<number>) {
    this.#work = work;
    if (firstMs === null) void this.#run();
    else this.#wait(firstMs);
  }

  /** Whether it has been disposed of, possibly during a run. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Begins the present wait anew. */
  postpone(): void {
    this.#timer?.refresh();
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #wait(milliseconds: number): void {
    this.#timer = setTimeout(this.#run, milliseconds).unref();
  }

  readonly #run = async (): Promise<void> => {
    this.#timer = null;
    const milliseconds = await this.#work();
    if (!this.#isOver) this.#wait(milliseconds);
  };
}
