import { closeSync } from 'node:fs';
import { closeAll, type Message } from '../../linux/memory/message-queue.ts';
import { contentOf } from '../../linux/memory/shared-memory.ts';

/** Descriptors by what they are for; null where there is none. */
export type NamedDescriptors = Readonly<Record<string, number | null>>;

/** Describes the program that has written a record. */
export type Writer = object;

/** A record as it was found. Its descriptors belong to whoever has it. */
export interface FoundRecord {
  readonly key: string;
  readonly writer: Writer;
  readonly state: unknown;
  readonly descriptors: Readonly<Record<string, number>>;
}

export interface RecordContent {
  readonly key: string;
  readonly writer: Writer;
  /**
   * The time at which it was written, as a number that only grows. Of messages with the same key the latest one is valid.
   */
  readonly at: number;
  readonly names: readonly string[];
  readonly state: unknown;
}

/** Adds a record. Of two with the same key the later one is kept, and the descriptors of the other are closed. */
export function addLatest(
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
export function parse({ bytes, descriptors }: Message): FoundRecord & RecordContent {
  const file = bytes.length === 0 ? descriptors.at(-1) : undefined;
  const text = file === undefined ? bytes : contentOf(file);
  if (file !== undefined) closeSync(file);
  // The shape is not checked: an envd has written it, to a queue that only root has.
  const content: RecordContent = JSON.parse(text.toString());
  const named = Object.fromEntries(content.names.map((name, index) => [name, descriptors[index] ?? -1]));
  return { ...content, descriptors: named };
}
