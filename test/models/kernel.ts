import type { Message } from '../../src/daemon/linux/memory/message-queue.ts';
import type { StoredDescriptor } from '../../src/daemon/linux/system/systemd.ts';

/** Thrown by each call of a program that was killed. */
export class Killed extends Error {}

/** Above all that the process of the test has open. */
const FIRST = 1_000_000;

/**
 * Queues of the kernel and the store of a service manager, in memory. A program is killed before one of its calls: then its
 * descriptors are closed, and what only it had is gone.
 */
export class Kernel {
  /** What a message has; its descriptors are files. */
  readonly #queues = new Map<number, Message[]>();
  /** Queues and files by descriptor of the program. */
  #open = new Map<number, number>();
  #stored: { readonly name: string; readonly queue: number }[] = [];
  #last = FIRST;
  /** Calls that the program may make until it is killed. */
  #left = Number.POSITIVE_INFINITY;
  calls = 0;

  /** Begins another program, and kills it before that call of its own; returns what the manager gives it. */
  begin(killedBefore: number): StoredDescriptor[] {
    this.#open = new Map();
    const held = new Set(this.#stored.map(({ queue }) => queue));
    for (const queue of this.#queues.keys()) if (!held.has(queue)) this.#queues.delete(queue);
    this.#left = killedBefore;
    this.calls = 0;
    return this.again();
  }

  /** What the next program of the same process has of the manager's store. */
  again(): StoredDescriptor[] {
    return this.#stored.map(({ name, queue }) => ({ name, descriptor: this.#opened(queue) }));
  }

  get messages(): number {
    return [...this.#queues.values()].reduce((sum, { length }) => sum + length, 0);
  }

  get stored(): number {
    return this.#stored.length;
  }

  /** A descriptor of a file. */
  file(number: number): number {
    return this.#opened(number);
  }

  fileOf(descriptor: number): number | undefined {
    return this.#open.get(descriptor);
  }

  queue(): { read: number; write: number } {
    this.#call();
    this.#last += 1;
    const queue = this.#last;
    this.#queues.set(queue, []);
    return { read: this.#opened(queue), write: this.#opened(queue) };
  }

  send(writing: number, { bytes, descriptors }: Message): void {
    this.#call();
    const files = descriptors.map((descriptor) => this.#open.get(descriptor) ?? -1);
    this.#queues.get(this.#open.get(writing) ?? -1)?.push({ bytes: Buffer.from(bytes), descriptors: files });
  }

  first(reading: number): Message | null {
    this.#call();
    const [first] = this.#queues.get(this.#open.get(reading) ?? -1) ?? [];
    return first
      ? { bytes: first.bytes, descriptors: first.descriptors.map((file) => this.#opened(file)) }
      : null;
  }

  drop(reading: number): boolean {
    this.#call();
    return this.#queues.get(this.#open.get(reading) ?? -1)?.shift() !== undefined;
  }

  close(descriptor: number): boolean {
    if (descriptor < FIRST) return false;
    this.#open.delete(descriptor);
    return true;
  }

  store({ name, descriptor }: StoredDescriptor): void {
    this.#call();
    this.#stored.push({ name, queue: this.#open.get(descriptor) ?? -1 });
  }

  unstore(name: string): void {
    this.#call();
    this.#stored = this.#stored.filter((each) => each.name !== name);
  }

  #opened(what: number): number {
    this.#last += 1;
    this.#open.set(this.#last, what);
    return this.#last;
  }

  #call(): void {
    if (this.#left === 0) throw new Killed();
    this.#left -= 1;
    this.calls += 1;
  }
}
