import { isSystemError } from '../../../base/errors.ts';
import {
  appendMessage,
  closeAll,
  dropFirstMessage,
  firstMessage,
  type Message,
  openQueue,
} from '../../linux/memory/message-queue.ts';
import type { StoredDescriptor } from '../../linux/system/systemd.ts';

export type Removal = () => void;

/** A queue whose messages can be removed one by one. */
export class RecordQueue implements StoredDescriptor {
  readonly name: string;
  readonly #ends = openQueue();
  /** The removals of the messages, in their order. */
  readonly #removals: Removal[] = [];

  constructor(name: string) {
    this.name = name;
  }

  get length(): number {
    return this.#removals.length;
  }

  get descriptor(): number {
    return this.#ends.read;
  }

  /** Appends a message. Throws sendmsg(2)'s errors. */
  send(message: Message): Removal {
    appendMessage(this.#ends.write, message);
    const removal = () => this.#remove(removal);
    this.#removals.push(removal);
    return removal;
  }

  /**
   * Removes a message. This happens at once, because its descriptors may be the last ones that keep a pipe open. Messages
   * before it are sent again first, so that they are in the queue at every moment.
   */
  #remove(removal: Removal): void {
    while (this.#removals.includes(removal)) {
      const [first] = this.#removals;
      if (first !== undefined && first !== removal) {
        if (!this.#repeatFirst()) return;
        this.#removals.push(first);
      }
      this.#removals.shift();
      dropFirstMessage(this.descriptor);
    }
  }

  /** Sends the first message again; returns false when the kernel has no memory for that. */
  #repeatFirst(): boolean {
    const first = firstMessage(this.descriptor);
    if (!first) return true;
    try {
      appendMessage(this.#ends.write, first);
      return true;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      return false;
    } finally {
      closeAll(first.descriptors);
    }
  }
}
