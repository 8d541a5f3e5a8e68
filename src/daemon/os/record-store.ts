import { closeSync } from 'node:fs';
import { isSystemError, messageOf } from '../../base/errors.ts';
import { ManagerOutbox } from './manager-outbox.ts';
import { closeAll, dropFirstMessage, firstMessage, MESSAGE_BYTES, type Message } from './message-queue.ts';
import { RecordQueue } from './record-queue.ts';
import { contentOf, fileWith } from './shared-memory.ts';
import { removeDescriptor, type StoredDescriptor, storeDescriptor } from './systemd.ts';

/** Descriptors by what they are for; null: none. */
export type NamedDescriptors = Readonly<Record<string, number | null>>;

/** Which program has written a record. */
export type Writer = object;

/** A record as it was found. Its descriptors belong to who has it. */
export interface FoundRecord {
  readonly key: string;
  readonly writer: Writer;
  readonly state: unknown;
  readonly descriptors: Readonly<Record<string, number>>;
}

/** What a message says. */
interface Content {
  readonly key: string;
  readonly writer: Writer;
  /** Of messages with the same key the latest one is valid. */
  readonly at: number;
  readonly names: readonly string[];
  readonly state: unknown;
}

/** Where a record is. */
interface Place {
  readonly queue: RecordQueue;
  readonly token: object;
}

/**
 * Messages with descriptors in each queue, at first and when there are many queues: to remove one, those before it are sent
 * again. The service manager compares a new queue with all others.
 */
const SPREAD_QUEUES = 32;
const MOST_QUEUES = 256;
const MOST_TOGETHER = 4;

/**
 * Records with descriptors that outlive this program, whatever ends it (docs/decisions/038-crashes.md). They are messages in
 * queues of the kernel, whose reading ends the service manager has. Without a service manager nothing is kept.
 */
export class RecordStore {
  readonly #socket: string | null;
  readonly #writer: Writer;
  readonly #onFailure: (reason: string) => void;
  #failures = 0;
  /** Of records that change; and of those that do not any more, which are removed in about the order of their making. */
  readonly #queues: RecordQueue[] = [];
  #lasting: RecordQueue | null = null;
  readonly #outbox: ManagerOutbox;
  #last = 0;

  /** `socket`: of the service manager, or null. `onFailure`: told once when a record cannot be kept. */
  constructor(socket: string | null, writer: Writer, onFailure: (reason: string) => void) {
    this.#socket = socket;
    this.#writer = writer;
    this.#onFailure = onFailure;
    this.#outbox = new ManagerOutbox(socket, this.#fail);
  }

  /** Resolves when the service manager has taken all queues, or is not there; null: none waits for room. */
  get taken(): Promise<void> | null {
    return this.#outbox.taken;
  }

  /** How often a record could not be kept, or the service manager not be reached. */
  get failures(): number {
    return this.#failures;
  }

  get isActive(): boolean {
    return this.#socket !== null;
  }

  /** A record that is not kept before it is set. `key`: that of the record of an earlier program. */
  record(key: string = `${this.#now()}`): KeptRecord {
    return new KeptRecord(this, key);
  }

  /** The queues, for a later program of this process. */
  get queues(): StoredDescriptor[] {
    return this.#lasting ? [this.#lasting, ...this.#queues] : [...this.#queues];
  }

  /**
   * Moves the records of an earlier program to this store, and returns them. `forget` drops them, when they have been set
   * again. If this program is killed meanwhile, the next one finds them.
   */
  recover(stored: readonly StoredDescriptor[]): { records: FoundRecord[]; forget: (key: string) => void } {
    const found = new Map<string, FoundRecord & Content>();
    const places: [key: string, place: Place][] = [];
    for (const { name, descriptor } of stored) {
      if (!name.startsWith(PREFIX)) continue;
      for (let message = firstMessage(descriptor); message; message = firstMessage(descriptor)) {
        const place = this.#put(message, true);
        // Until then the message is only here.
        this.#outbox.waitUntilTaken();
        const record = parse(message);
        if (place) places.push([record.key, place]);
        dropFirstMessage(descriptor);
        addLatest(found, record);
      }
    }
    this.discard(stored);
    const forget = (wanted: string) => {
      this.#outbox.waitUntilTaken();
      for (const [key, place] of places) if (key === wanted) remove(place);
    };
    return { records: [...found.values()], forget };
  }

  /** Drops the queues of an earlier program with all that is in them. */
  discard(stored: readonly StoredDescriptor[]): void {
    for (const { name, descriptor } of stored) {
      if (name.startsWith(PREFIX)) while (dropFirstMessage(descriptor)) {}
      closeSync(descriptor);
    }
    for (const name of new Set(stored.map((each) => each.name)))
      this.#outbox.tell((socket) => removeDescriptor(socket, name));
  }

  /** Called by a record. Null when it cannot be kept, which is reported. */
  put(key: string, state: object, descriptors: NamedDescriptors, isLast: boolean): Place | null {
    if (this.#socket === null) return null;
    const open = Object.entries(descriptors).filter((entry): entry is [string, number] => entry[1] !== null);
    const names = open.map(([name]) => name);
    const content: Content = { key, writer: this.#writer, at: this.#now(), names, state };
    const text = Buffer.from(JSON.stringify(content));
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

  #putLong(text: Buffer, descriptors: readonly number[], isLast: boolean): Place | null {
    const file = fileWith(text);
    try {
      return this.#put({ bytes: Buffer.alloc(0), descriptors: [...descriptors, file] }, isLast);
    } finally {
      closeSync(file);
    }
  }

  #put(message: Message, isLast: boolean): Place | null {
    try {
      const queue = isLast ? this.#lastQueue() : this.#leastUsed();
      return { queue, token: queue.send(message) };
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

  /** In microseconds since the boot, and larger than ever before. */
  #now(): number {
    this.#last = Math.max(this.#last + 1, Number(process.hrtime.bigint() / 1000n));
    return this.#last;
  }
}

/** A record; it is replaced as a whole, and is valid at any moment. */
export class KeptRecord {
  readonly key: string;
  readonly #store: RecordStore;
  #place: Place | null = null;

  constructor(store: RecordStore, key: string) {
    this.#store = store;
    this.key = key;
  }

  /** `isLast`: it is not set again, and dropped in the order of other last ones: removing any other one of many takes long. */
  set(state: object, descriptors: NamedDescriptors = {}, isLast = false): void {
    const earlier = this.#place;
    this.#place = this.#store.put(this.key, state, descriptors, isLast);
    if (earlier) remove(earlier);
  }

  drop(): void {
    if (this.#place) remove(this.#place);
    this.#place = null;
  }
}

const PREFIX = 'envd-';

function remove({ queue, token }: Place): void {
  queue.remove(token);
}

/** Closes the descriptors of the older one of two records with the same key. */
function addLatest(found: Map<string, FoundRecord & Content>, record: FoundRecord & Content): void {
  const other = found.get(record.key);
  const isLatest = !other || other.at < record.at;
  const older = isLatest ? other : record;
  if (isLatest) found.set(record.key, record);
  if (older) closeAll(Object.values(older.descriptors));
}

function parse({ bytes, descriptors }: Message): FoundRecord & Content {
  const file = bytes.length === 0 ? descriptors.at(-1) : undefined;
  const text = file === undefined ? bytes : contentOf(file);
  if (file !== undefined) closeSync(file);
  // Written by a program of ours, to a queue that only root has.
  const content: Content = JSON.parse(text.toString());
  const named = Object.fromEntries(content.names.map((name, index) => [name, descriptors[index] ?? -1]));
  return { ...content, descriptors: named };
}
