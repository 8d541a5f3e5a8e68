import { closeSync } from 'node:fs';
import { isSystemError, messageOf } from '../../../base/errors.ts';
import {
  dropFirstMessage,
  firstMessage,
  MESSAGE_BYTES,
  type Message,
} from '../../linux/memory/message-queue.ts';
import { RecordMemory, textsIn } from '../../linux/memory/record-memory.ts';
import { fileWith } from '../../linux/memory/shared-memory.ts';
import { ManagerOutbox } from '../../linux/system/manager-outbox.ts';
import { removeDescriptor, type StoredDescriptor, storeDescriptor } from '../../linux/system/systemd.ts';
import {
  addLatest,
  type FoundRecord,
  type NamedDescriptors,
  parse,
  type RecordContent,
  type Writer,
} from './record.ts';
import { RecordQueue } from './record-queue.ts';

/** Removes a record from the place where it is. */
type Removal = () => void;

/**
 * Each record gets a queue of its own while there are fewer than `SPREAD_QUEUES`, because the removal of a message sends
 * those before it again. After that up to `MOST_TOGETHER` records share a queue, and beyond `MOST_QUEUES` any number of them,
 * because the service manager compares a new queue with all others.
 */
const SPREAD_QUEUES = 32;
const MOST_QUEUES = 256;
const MOST_TOGETHER = 4;

/** The state of the record whose descriptor is the memory of others. */
const MEMORY = 'memory';

/**
 * Keeps records with descriptors that outlive this program, whatever ends it (docs/decisions/019-crashes.md). They are
 * messages in queues of the kernel, whose reading ends the service manager has. Records without descriptors are in shared
 * memory, whose descriptor is in one of the messages. Without a service manager nothing is kept.
 */
export class RecordStore {
  readonly isActive: boolean;
  readonly #writer: Writer;
  readonly #onFailure: (reason: string) => void;
  #failures = 0;
  readonly #queues: RecordQueue[] = [];
  /** The queue of records that do not change any more, which are removed in about the order in which they were made. */
  #lasting: RecordQueue | null = null;
  /** The memory of records without descriptors; false when there can be none, and null before it is needed. */
  #memory: RecordMemory | false | null = null;
  readonly #outbox: ManagerOutbox;
  #last = 0;

  /** `socket` is the service manager's, or null. `onFailure` is called once, when a record cannot be kept. */
  constructor(socket: string | null, writer: Writer, onFailure: (reason: string) => void) {
    this.isActive = socket !== null;
    this.#writer = writer;
    this.#onFailure = onFailure;
    this.#outbox = new ManagerOutbox(socket, this.#fail);
  }

  /** Resolves when the service manager has taken all queues, or is not there; null when none waits for room. */
  get taken(): Promise<void> | null {
    return this.#outbox.taken;
  }

  /** How often a record could not be kept, or the service manager could not be reached. */
  get failures(): number {
    return this.#failures;
  }

  /** Returns a record, which is kept once it is set. `key` continues the record of an earlier program. */
  record(key: string = `${this.#now()}`): KeptRecord {
    return new KeptRecord(this, key);
  }

  /** The queues that a later program of this process inherits. */
  get queues(): StoredDescriptor[] {
    return this.#lasting ? [this.#lasting, ...this.#queues] : [...this.#queues];
  }

  /**
   * Moves the records of an earlier program to this store, and returns them. `forget` drops those with a key; call it when
   * they were set again. If this program is killed meanwhile, the next one finds them.
   */
  recover(stored: readonly StoredDescriptor[]): { records: FoundRecord[]; forget: (key: string) => void } {
    const found = new Map<string, FoundRecord & RecordContent>();
    const removals: [key: string, remove: Removal][] = [];
    for (const { name, descriptor } of stored) {
      if (!name.startsWith(PREFIX)) continue;
      for (let message = firstMessage(descriptor); message; message = firstMessage(descriptor)) {
        for (const { record, remove } of this.#move(message)) {
          if (remove) removals.push([record.key, remove]);
          addLatest(found, record);
        }
        // The message may be dropped only when the service manager has the queue with the copy.
        this.#outbox.waitUntilTaken();
        dropFirstMessage(descriptor);
      }
    }
    this.discard(stored);
    const forget = (wanted: string) => {
      this.#outbox.waitUntilTaken();
      for (const [key, remove] of removals) if (key === wanted) remove();
    };
    return { records: [...found.values()], forget };
  }

  /** Drops the queues of an earlier program with everything in them. */
  discard(stored: readonly StoredDescriptor[]): void {
    for (const { name, descriptor } of stored) {
      if (name.startsWith(PREFIX)) while (dropFirstMessage(descriptor)) {}
      closeSync(descriptor);
    }
    for (const name of new Set(stored.map((each) => each.name)))
      this.#outbox.tell((socket) => removeDescriptor(socket, name));
  }

  /** Keeps the state of a record, which calls this. Returns null when that fails, and reports the failure. */
  put(key: string, state: unknown, descriptors: NamedDescriptors, isLast: boolean): Removal | null {
    if (!this.isActive) return null;
    const open = Object.entries(descriptors).filter((entry): entry is [string, number] => entry[1] !== null);
    const names = open.map(([name]) => name);
    const content: RecordContent = { key, writer: this.#writer, at: this.#now(), names, state };
    const json = JSON.stringify(content);
    const inMemory = open.length === 0 ? this.#putInMemory(json) : null;
    if (inMemory) return inMemory;
    const text = Buffer.from(json);
    const numbers = open.map(([, number]) => number);
    try {
      return text.length <= MESSAGE_BYTES
        ? this.#put({ bytes: text, descriptors: numbers }, isLast)
        : this.#putLong(text, numbers, isLast);
    } catch (error) {
      this.#failed(error);
      return null;
    }
  }

  /** Puts a record into memory; returns null when there is no room. */
  #putInMemory(text: string): Removal | null {
    const memory = this.#memory ?? this.#makeMemory();
    if (!memory) return null;
    const slot = memory.put(text);
    return slot === null ? null : () => memory.remove(slot);
  }

  #makeMemory(): RecordMemory | false {
    const memory = new RecordMemory();
    const isKept =
      memory.descriptor !== null && this.put(MEMORY, MEMORY, { memory: memory.descriptor }, false);
    this.#memory = isKept ? memory : false;
    return this.#memory;
  }

  /** Puts the records of an earlier program's message into this store. */
  #move(message: Message): { record: FoundRecord & RecordContent; remove: Removal | null }[] {
    // The copy comes first, because the file of a long record is closed when it has been read.
    const remove = this.#put(message, true);
    const record = parse(message);
    const { memory } = record.descriptors;
    if (record.state !== MEMORY || memory === undefined) return [{ record, remove }];
    const moved = textsIn(memory).map((text) => ({
      record: { ...JSON.parse(text), descriptors: {} },
      remove: this.#putInMemory(text) ?? this.#put({ bytes: Buffer.from(text), descriptors: [] }, true),
    }));
    remove?.();
    return moved;
  }

  #putLong(text: Buffer, descriptors: readonly number[], isLast: boolean): Removal | null {
    const file = fileWith([text]);
    try {
      return this.#put({ bytes: Buffer.alloc(0), descriptors: [...descriptors, file] }, isLast);
    } finally {
      closeSync(file);
    }
  }

  #put(message: Message, isLast: boolean): Removal | null {
    try {
      const queue = isLast ? this.#lastQueue() : this.#leastUsed();
      const token = queue.send(message);
      return () => queue.remove(token);
    } catch (error) {
      this.#failed(error);
      return null;
    }
  }

  #failed(error: unknown): void {
    if (!isSystemError(error)) throw error;
    this.#fail(messageOf(error));
  }

  readonly #fail = (reason: string) => {
    this.#failures += 1;
    if (this.#failures === 1) this.#onFailure(reason);
  };

  #lastQueue(): RecordQueue {
    this.#lasting ??= this.#open();
    return this.#lasting;
  }

  #leastUsed(): RecordQueue {
    const queues = this.#queues;
    const least = queues.reduce((a, b) => (b.length < a.length ? b : a), queues[0] ?? this.#add());
    const most = queues.length < SPREAD_QUEUES ? 1 : MOST_TOGETHER;
    return least.length >= most && queues.length < MOST_QUEUES ? this.#add() : least;
  }

  #add(): RecordQueue {
    const queue = this.#open();
    this.#queues.push(queue);
    return queue;
  }

  #open(): RecordQueue {
    const queue = new RecordQueue(`${PREFIX}${this.#now()}`);
    this.#outbox.tell((socket) => storeDescriptor(socket, queue));
    return queue;
  }

  /** Returns the microseconds since the boot, or more, so that each number is larger than the one before. */
  #now(): number {
    this.#last = Math.max(this.#last + 1, Number(process.hrtime.bigint() / 1000n));
    return this.#last;
  }
}

/** A record. It is replaced as a whole, and is valid at any moment. */
export class KeptRecord {
  readonly key: string;
  readonly #store: RecordStore;
  #remove: Removal | null = null;

  constructor(store: RecordStore, key: string) {
    this.#store = store;
    this.key = key;
  }

  get isKept(): boolean {
    return this.#store.isActive;
  }

  /**
   * Replaces the record. With `isLast` it is not set again, and is dropped in about the same order as others that were set
   * so, because a removal in another order takes long when there are many.
   */
  set(state: object, descriptors: NamedDescriptors = {}, isLast = false): void {
    const earlier = this.#remove;
    this.#remove = this.#store.put(this.key, state, descriptors, isLast);
    earlier?.();
  }

  drop(): void {
    this.#remove?.();
    this.#remove = null;
  }
}

const PREFIX = 'envd-';
