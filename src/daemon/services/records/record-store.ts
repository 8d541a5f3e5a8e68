import { closeSync } from 'node:fs';
import { isSystemError, messageOf } from '../../../base/errors.ts';
import {
  closeAll,
  dropFirstMessage,
  firstMessage,
  MESSAGE_BYTES,
  type Message,
} from '../../linux/memory/message-queue.ts';
import { contentOf, fileWith } from '../../linux/memory/shared-memory.ts';
import { ManagerOutbox } from '../../linux/system/manager-outbox.ts';
import { removeDescriptor, type StoredDescriptor, storeDescriptor } from '../../linux/system/systemd.ts';
import { RecordQueue, type Removal } from './record-queue.ts';

/** Descriptors by what they are for; null where there is none. */
export type NamedDescriptors = Readonly<Record<string, number | null>>;

/** A record as it was found. Its descriptors belong to whoever has it. */
export interface FoundRecord {
  readonly key: string;
  /** Describes the program that has written the record. */
  readonly writer: object;
  readonly state: unknown;
  readonly descriptors: Readonly<Record<string, number>>;
}

interface RecordContent extends Omit<FoundRecord, 'descriptors'> {
  /** A number that only grows. Of messages with the same key, the one with the largest number is valid. */
  readonly at: number;
  /** What the descriptors of the message are for, in their order. */
  readonly names: readonly string[];
}

const PREFIX = 'envd-';
/**
 * Up to this number, each record that may change has a queue of its own, because the removal of a message sends those before it
 * again. The service manager keeps at most 300 descriptors (`FileDescriptorStoreMax` of the unit).
 */
const MOST_QUEUES = 128;

/**
 * Keeps records with descriptors that outlive this program, whatever ends it (docs/decisions/019-crashes.md). They are
 * messages in queues of the kernel, whose reading ends the service manager has. Without a service manager nothing is kept.
 */
export class RecordStore {
  readonly isActive: boolean;
  readonly #writer: object;
  readonly #onFailure: (reason: string) => void;
  #failures = 0;
  readonly #queues: RecordQueue[] = [];
  /** The queue of records that do not change any more, which are removed in about the order in which they were made. */
  #last: RecordQueue | null = null;
  readonly #outbox: ManagerOutbox;
  #latest = 0;

  /** `socket` is the service manager's, or null. `onFailure` is called once, when a record cannot be kept. */
  constructor(socket: string | null, writer: object, onFailure: (reason: string) => void) {
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
    return this.#last ? [this.#last, ...this.#queues] : [...this.#queues];
  }

  /**
   * Moves the records of an earlier program to this store, and returns them. `forget` drops those with a key; call it when
   * they were set again. If this program is killed meanwhile, the next one finds them.
   */
  recover(stored: readonly StoredDescriptor[]): { records: FoundRecord[]; forget: (key: string) => void } {
    const found = new Map<string, FoundRecord & RecordContent>();
    const removals = new Map<string, Removal[]>();
    for (const { name, descriptor } of stored) {
      if (!name.startsWith(PREFIX)) continue;
      for (let message = firstMessage(descriptor); message; message = firstMessage(descriptor)) {
        // The copy comes first, because the file of a long record is closed when it has been read.
        const remove = this.#send(message, true);
        const record = parse(message);
        if (remove) removals.set(record.key, [...(removals.get(record.key) ?? []), remove]);
        addLatest(found, record);
        // The message may be dropped only when the service manager has the queue with the copy.
        this.#outbox.waitUntilTaken();
        dropFirstMessage(descriptor);
      }
    }
    this.discard(stored);
    const forget = (key: string) => {
      this.#outbox.waitUntilTaken();
      for (const remove of removals.get(key) ?? []) remove();
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
      this.#outbox.send((socket) => removeDescriptor(socket, name));
  }

  /** Keeps the state of a record, which calls this. Returns null when that fails, and reports the failure. */
  put(key: string, state: unknown, descriptors: NamedDescriptors, isLast: boolean): Removal | null {
    if (!this.isActive) return null;
    const open = Object.entries(descriptors).filter((entry): entry is [string, number] => entry[1] !== null);
    const names = open.map(([name]) => name);
    const content: RecordContent = { key, writer: this.#writer, at: this.#now(), names, state };
    const bytes = Buffer.from(JSON.stringify(content));
    const numbers = open.map(([, number]) => number);
    if (bytes.length <= MESSAGE_BYTES) return this.#send({ bytes, descriptors: numbers }, isLast);
    try {
      const file = fileWith([bytes]);
      const remove = this.#send({ bytes: Buffer.alloc(0), descriptors: [...numbers, file] }, isLast);
      closeSync(file);
      return remove;
    } catch (error) {
      return this.#failed(error);
    }
  }

  #send(message: Message, isLast: boolean): Removal | null {
    try {
      return (isLast ? this.#lastQueue() : this.#leastUsed()).send(message);
    } catch (error) {
      return this.#failed(error);
    }
  }

  #failed(error: unknown): null {
    if (!isSystemError(error)) throw error;
    this.#fail(messageOf(error));
    return null;
  }

  readonly #fail = (reason: string) => {
    this.#failures += 1;
    if (this.#failures === 1) this.#onFailure(reason);
  };

  #lastQueue(): RecordQueue {
    this.#last ??= this.#open();
    return this.#last;
  }

  #leastUsed(): RecordQueue {
    const queues = this.#queues;
    const least = queues.reduce((a, b) => (b.length < a.length ? b : a), queues[0] ?? this.#add());
    return least.length > 0 && queues.length < MOST_QUEUES ? this.#add() : least;
  }

  #add(): RecordQueue {
    const queue = this.#open();
    this.#queues.push(queue);
    return queue;
  }

  #open(): RecordQueue {
    const queue = new RecordQueue(`${PREFIX}${this.#now()}`);
    this.#outbox.send((socket) => storeDescriptor(socket, queue));
    return queue;
  }

  /** Returns the microseconds since the boot, or more, so that each number is larger than the one before. */
  #now(): number {
    this.#latest = Math.max(this.#latest + 1, Number(process.hrtime.bigint() / 1000n));
    return this.#latest;
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

/** Adds a record. Of two with the same key the later one is kept, and the descriptors of the other are closed. */
function addLatest(
  found: Map<string, FoundRecord & RecordContent>,
  record: FoundRecord & RecordContent,
): void {
  const other = found.get(record.key);
  const isLatest = !other || other.at < record.at;
  const older = isLatest ? other : record;
  if (isLatest) found.set(record.key, record);
  if (older) closeAll(Object.values(older.descriptors));
}

/** Returns the record of a message, which owns the descriptors of the message. */
function parse({ bytes, descriptors }: Message): FoundRecord & RecordContent {
  const file = bytes.length === 0 ? descriptors.at(-1) : undefined;
  const text = file === undefined ? bytes : contentOf(file);
  if (file !== undefined) closeSync(file);
  // The shape is not checked: an envd has written it, to a queue that only root has.
  const content: RecordContent = JSON.parse(text.toString());
  const named = Object.fromEntries(content.names.map((name, index) => [name, descriptors[index] ?? -1]));
  return { ...content, descriptors: named };
}
