import { isSystemError } from '../../../base/errors.ts';
import {
  closeAll,
  dropFirstMessage,
  firstMessage,
  type Message,
  MessageQueue,
} from '../../linux/memory/message-queue.ts';
import type { StoredDescriptor } from '../../linux/system/systemd.ts';

/** A queue whose messages can be removed one by one. */
export class RecordQueue implements StoredDescriptor {
  readonly name: string;
  readonly #messages = new MessageQueue();
  readonly #tokens: object[] = [];

  constructor(name: string) {
    this.name = name;
  }

  get length(): number {
    return this.#tokens.length;
  }

  get descriptor(): number {
    return this.#messages.reading;
  }

  /** Appends a message; returns a token by which it can be removed. Throws sendmsg(2)'s errors. */
  send(message: Message): object {
    this.#messages.send(message);
    const token = {};
    this.#tokens.push(token);
    return token;
  }

  /**
   * Removes a message. This happens at once, because its descriptors may be the last ones that keep a pipe open. Messages
   * before it are sent again first, so that they are in the queue at every moment.
   */
  remove(token: object): void {
    while (this.#tokens.includes(token)) {
      const [first] = this.#tokens;
      if (first !== undefined && first !== token) {
        if (!this.#repeatFirst()) return;
        this.#tokens.push(first);
      }
      this.#tokens.shift();
      dropFirstMessage(this.descriptor);
    }
  }

  /** Sends the first message again; returns false when the kernel has no memory for that. */
  #repeatFirst(): boolean {
    const first = firstMessage(this.descriptor);
    if (!first) return true;
    try {
      this.#messages.send(first);
      return true;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      return false;
    } finally {
      closeAll(first.descriptors);
    }
  }
}
