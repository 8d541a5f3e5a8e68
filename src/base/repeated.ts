/** Repeats work in the background, one run at a time. Its timer does not keep the process alive. */
export class Repeated implements Disposable {
  readonly #work: () => Promise<number>;
  /** The wait before the next run; null: the work is running. */
  #timer: NodeJS.Timeout | null = null;
  #isOver = false;

  /**
   * @param firstMs the wait before the first run, in milliseconds; null: the first run begins now
   * @param work resolves with the wait before the next run, in milliseconds, and never rejects
   */
  constructor(firstMs: number | null, work: () => Promise<number>) {
    this.#work = work;
    if (firstMs === null) void this.#run();
    else this.#wait(firstMs);
  }

  /** Whether this was disposed of, possibly during a run. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Starts the current wait again. */
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
